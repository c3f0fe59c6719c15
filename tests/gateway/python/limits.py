"""Reads limits.toml: what an SDK does not offer, and what a dialect cannot carry."""

import tomllib
from copy import deepcopy
from fnmatch import fnmatch
from pathlib import Path


class Limits:
    """The table, which remembers what of it was needed."""

    def __init__(self):
        table = tomllib.loads((Path(__file__).parents[1] / "limits.toml").read_text())
        self.absent = table["absent"]
        self.differences = table["difference"]
        self.needed = set()

    def is_absent(self, check):
        """Whether the SDK has no such call."""
        return any(concerns(entry, check) for entry in self.absent)

    def expected(self, check):
        """What is expected, with every difference put in."""
        expected = deepcopy(check.expected)
        for entry in self.differences:
            if concerns(entry, check):
                before = deepcopy(expected)
                expected = changed(entry, check, expected)
                if expected != before:
                    self.needed.add(entry["reason"])
        return expected

    def unneeded(self, languages):
        """Differences between none of the SDKs of these languages and any upstream."""
        speaks = lambda entry: {sdk.split()[0] for sdk in entry.get("sdk", ["*"])}
        known = {*languages, "*"}
        unneeded = [entry for entry in self.differences if entry["reason"] not in self.needed]
        return [entry["reason"] for entry in unneeded if speaks(entry) & known]


def concerns(entry, check):
    places = {
        "sdk": str(check.sdk),
        "speaks": check.sdk.speaks,
        "to": str(check.upstream),
        "case": check.case,
    }
    holds = lambda key, place: any(fnmatch(place, known) for known in entry.get(key, ["*"]))
    return all(holds(key, place) for key, place in places.items())


def changed(entry, check, expected):
    if "refused" in entry:
        return check.sdk.error(422, entry["refused"])
    if "results" in entry:
        said = expected["end"]["text"]["said"]
        said[:] = [result(entry["results"], *one) if one[0] == "result" else one for one in said]
    expected = {**expected, **entry.get("change", {})}
    return {key: value for key, value in expected.items() if key not in entry.get("without", [])}


def result(form, kind, name, text):
    """A tool's result in another form."""
    words = {"NAME": name, "TEXT": text}
    return [kind, name, {key: words[word] for key, word in form.items()}]
