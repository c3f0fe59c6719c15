"""Lets the vendors' SDKs talk through the gateway to a vendor that tells what it heard.

Starts the vendor and `abp serve` in front of it, hands the jobs of cases.py to the SDKs, and
compares what they saw with what they should have seen, but for what limits.toml explains.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from cases import checks as all_checks
from limits import Limits
from matrix import DIALECTS
from vendor.server import KEY, Vendor

HERE = Path(__file__).resolve().parent
# How many seconds a client may take for all its jobs, and the gateway for its end.
PATIENCE = 600
# How much of a value is shown.
SHOWN = 400
PATHS = {"openai": "/openai/v1", "codex": "/openai/v1", "claude": "/claude", "gemini": "/gemini"}


def configuration(vendor, checks):
    """An upstream for each dialect, and one for each check that wants to be alone."""
    # What fails should be seen to fail, at once; and a pause of the vendor is a long one.
    text = "[server]\nmax_attempts = 1\nkeepalive_secs = 1\n"

    def upstream(name, dialect, models, aliases):
        called = ", ".join(f'{alias} = "{model}"' for alias, model in aliases.items())
        return textwrap.dedent(f"""
            [upstreams.{name}]
            dialect = "{dialect}"
            base_url = "{vendor.url}{PATHS[dialect]}"
            api_key_env = "VENDOR_KEY"
            models = {json.dumps(models)}
            aliases = {{ {called} }}
            pass_through = {json.dumps(["*"] if name == dialect else [])}
        """)

    for dialect in DIALECTS:
        aliases = {f"renamed-{dialect}": f"vendors-{dialect}"}
        text += upstream(dialect, dialect, [f"via-{dialect}"], aliases)
    for number, check in enumerate(check for check in checks if check.alone):
        name = check.job["model"] = f"alone-{number}"
        renamed = check.upstream.model != check.upstream.sent
        names = ([], {name: check.upstream.sent}) if renamed else ([name], {})
        text += upstream(name, check.upstream.dialect, *names)
    return text


def expect_models(checks):
    """The gateway lists the upstreams of those who want to be alone as well."""
    alone = [check.job["model"] for check in checks if check.alone]
    for check in checks:
        if check.case == "models":
            check.expected["names"] = sorted([*check.expected["names"], *alone])


@contextmanager
def gateway(abp, configuration):
    """Address and key of `abp serve`, while it runs."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "backplane.toml"
        config.write_text(configuration)
        command = [abp, "serve", "--json", "--listen", "127.0.0.1:0"]
        command += ["--config", config, "--state-dir", Path(directory) / "state"]
        environment = {"PATH": os.environ["PATH"], "HOME": directory, "VENDOR_KEY": KEY}
        environment["RUST_LOG"] = "error"
        served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            started = first_document(served.stdout)
            yield started["listening"], started["key"]
        finally:
            served.terminate()
            served.wait(PATIENCE)


def first_document(lines):
    """The JSON at the beginning of a stream that goes on."""
    text = ""
    for line in lines:
        text += line
        try:
            return json.loads(text)
        except ValueError:
            continue
    sys.exit("abp serve does not start")


def clients(node_modules):
    """The command of each language."""
    commands = {"python": [sys.executable, "-B", HERE / "client.py"]}
    if node_modules:
        commands["node"] = ["node", HERE.parent / "node" / "client.cjs"]
    return commands


def run(command, checks, address, node_modules):
    """Hands the jobs to a client and returns what it saw, in the same order."""
    url, key = address
    lines = "".join(json.dumps(check.job) + "\n" for check in checks)
    # Nothing else of the environment: the SDKs take keys, proxies and addresses from it.
    environment = {"PATH": os.environ["PATH"], "NODE_PATH": str(node_modules)}
    done = subprocess.run(
        [*command, "--url", url, "--key", key],
        input=lines,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=PATIENCE,
    )
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(seen) != len(checks):
        sys.exit(f"{command[-1]} ended after {len(seen)} of {len(checks)} jobs")
    return seen


def read(value):
    """What was seen, with the JSON in its texts read."""
    if isinstance(value, dict):
        return {key: inner if key == "message" else read(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [read(inner) for inner in value]
    if isinstance(value, str) and value.startswith("{"):
        try:
            return read(json.loads(value))
        except ValueError:
            pass
    return value


def difference(expected, seen, path=""):
    """Where two differ, or nothing."""
    shown = lambda value: textwrap.shorten(json.dumps(value, ensure_ascii=False), SHOWN)
    if not path and "error" in seen and "error" not in expected:
        return f"got {shown(seen)}"
    if isinstance(expected, dict) and isinstance(seen, dict):
        keys = sorted({*expected, *seen})
        found = [difference(expected.get(k), seen.get(k), f"{path}/{k}") for k in keys]
        return "; ".join(filter(None, found))
    # SDKs wrap the vendor's message into words of their own.
    if path == "/message" and isinstance(seen, str) and (expected or "") in seen:
        return ""
    if expected == "*" and seen or expected == seen:
        return ""
    return f"{path}: expected {shown(expected)}, got {shown(seen)}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--abp", type=Path, required=True, help="the program under test")
    parser.add_argument("--node-modules", type=Path, help="where the Node SDKs are, if they are")
    parser.add_argument("--skipped", type=int, default=0, help="what the caller left out already")
    parser.add_argument("--only", default="", help="the checks whose names hold this")
    return parser.parse_args()


def main():
    args = arguments()
    commands = clients(args.node_modules)
    limits = Limits()
    checks = [check for check in all_checks() if check.sdk.language in commands]
    wanted = [check for check in checks if not limits.is_absent(check) and args.only in str(check)]
    groups = {name: [c for c in wanted if c.sdk.language == name] for name in commands}
    configured = configuration(Vendor(), wanted)
    expect_models(wanted)
    print(f"{len(wanted)} checks with the SDKs of {', '.join(commands)}", flush=True)
    with gateway(args.abp, configured) as address, ThreadPoolExecutor() as pool:
        work = lambda name: run(commands[name], groups[name], address, args.node_modules)
        seen = dict(zip(groups, pool.map(work, groups)))

    passed, failures = Counter(), []
    for name, group in groups.items():
        for check, found in zip(group, seen[name]):
            if problem := difference(limits.expected(check), read(found)):
                failures.append(f"{check}: {problem}")
            else:
                passed[check.sdk.name, name] += 1
    for (sdk, name), count in passed.items():
        print(f"{count:5} {name} {sdk}")
    if not args.only:
        failures += [f'no use for the limit "{why}"' for why in limits.unneeded(commands)]
    for failure in failures:
        print(f"FAIL {failure}")
    print(f"{passed.total()} passed, {len(failures)} failed, {args.skipped} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
