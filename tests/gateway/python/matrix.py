"""Who talks to whom: the SDKs of sdks.toml, and the upstreams of the gateway."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

DIALECTS = ("openai", "codex", "claude", "gemini")


@dataclass(frozen=True)
class Sdk:
    language: str
    name: str
    # The dialect it speaks.
    speaks: str
    # Its words for why an answer ends, and its errors by status.
    stops: dict
    errors: dict
    # What it raises where a stream goes wrong.
    broken: dict
    sampling: bool = True

    def __str__(self):
        return f"{self.language} {self.name}"

    def error(self, status, message):
        """What it raises for a status; the message holds this one."""
        return {"error": self.errors[str(status)], "status": status, "message": message}


@dataclass(frozen=True)
class Upstream:
    dialect: str
    # The name that callers use for a model, and the vendor's own.
    model: str
    sent: str

    def __str__(self):
        return self.dialect if self.model == self.sent else f"{self.dialect} renamed"

    def is_native(self, sdk):
        """Whether the bytes of an SDK pass as they are."""
        return self.dialect == sdk.speaks and self.model == self.sent


def sdks():
    table = tomllib.loads((Path(__file__).parents[1] / "sdks.toml").read_text())
    for entry in table["sdk"]:
        for key in ("stops", "errors"):
            entry[key] = table[key][entry[key]]
    return [Sdk(**entry) for entry in table["sdk"]]


def upstreams(sdk):
    """Each dialect's vendor, and that of the SDK's own dialect where the model has another name."""
    for dialect in DIALECTS:
        yield Upstream(dialect, f"via-{dialect}", f"via-{dialect}")
    yield Upstream(sdk.speaks, f"renamed-{sdk.speaks}", f"vendors-{sdk.speaks}")
