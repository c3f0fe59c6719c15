"""Lets programs that know nothing but /openapi.json use the control plane.

Starts `abp serve`, has Schemathesis send what the document allows and what it forbids, and lets clients in
Python and TypeScript that are generated from the document carry out a whole session each. The last line is
`N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

# What has to hold for every answer. Left out: whether every request that fits the schema is accepted,
# because cursors, hashes and ids have to exist.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    # Not `ignored_auth`: after some wrong keys the server answers 429 before it looks at the next one. The
    # tests of the daemon try every route without a key and with wrong ones.
]
# How many requests of each kind are made up for an operation.
EXAMPLES = 25
# WebSockets are no requests with one answer.
SOCKETS = ["/v1/ws", "/v1/runs/{run_id}/ws"]
PATIENCE = 600


@contextmanager
def server(abp):
    """Address and key of `abp serve`, while it runs."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "RUST_LOG": "error"}
        command = [abp, "serve", "--json", "--listen", "127.0.0.1:0"]
        served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            text = ""
            for line in served.stdout:
                text += line
                if line.rstrip() == "}":
                    break
            started = json.loads(text)
            yield started["listening"], started["key"]
        finally:
            served.terminate()
            served.wait(60)


def schemathesis(base, key, folder):
    """Whether every answer to what the schema allows and forbids is as the document says."""
    command = [Path(sys.executable).parent / "schemathesis", "run", f"{base}/openapi.json"]
    command += ["--url", base, "--header", f"Authorization: Bearer {key}"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)]
    command += ["--phases", "examples,coverage,fuzzing", "--request-timeout", "30", "--seed", "1"]
    for path in SOCKETS:
        command += ["--exclude-path", path]
    ran = subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=PATIENCE)
    if ran.returncode != 0:
        print(ran.stdout[-20_000:], ran.stderr[-2_000:])
    return ran.returncode == 0


def generated(base, key, folder):
    """Whether a client that was generated from the document carries out a whole session."""
    document = Path(folder) / "openapi.json"
    with urlopen(f"{base}/openapi.json", timeout=30) as answer:
        document.write_bytes(answer.read())
    tools = Path(sys.executable).parent
    command = [tools / "openapi-python-client", "generate", "--path", document]
    command += ["--output-path", Path(folder) / "abp_client", "--meta", "none"]
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    made = subprocess.run(command, cwd=folder, text=True, capture_output=True, env=environment)
    if made.returncode != 0:
        print(made.stdout, made.stderr)
        return False
    session = [sys.executable, "-B", Path(__file__).with_name("session.py"), base, key]
    environment["PYTHONPATH"] = str(folder)
    ran = subprocess.run(session, text=True, capture_output=True, env=environment, timeout=PATIENCE)
    if ran.returncode != 0:
        print(ran.stdout, ran.stderr)
    return ran.returncode == 0


def typescript(base, key, folder, modules):
    """Whether a TypeScript client whose types were generated from the document does the same."""
    project = Path(folder) / "typescript"
    project.mkdir()
    (project / "node_modules").symlink_to(modules)
    (project / "package.json").write_text('{"type": "module"}')
    source = Path(__file__).parent.with_name("control-ts") / "session.ts"
    (project / "session.ts").write_text(source.read_text())
    tools = project / "node_modules" / ".bin"
    # Members with a default may be left out of requests.
    generate = [tools / "openapi-typescript", f"{base}/openapi.json", "-o", "api.ts"]
    generate.append("--default-non-nullable=false")
    options = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"]
    compiled = [tools / "tsc", *options, "--lib", "es2023,dom", "session.ts"]
    for command in [generate, compiled, ["node", "session.js", base, key]]:
        ran = subprocess.run(command, cwd=project, text=True, capture_output=True, timeout=PATIENCE)
        if ran.returncode != 0:
            print(ran.stdout, ran.stderr)
            return False
    return True


CASES = [("generated Python client", generated), ("schemathesis", schemathesis)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--abp", required=True)
    parser.add_argument("--node-modules", help="the packages of tests/sdk/control-ts")
    args = parser.parse_args()
    failed, skipped, cases = 0, 0, list(CASES)
    if args.node_modules:
        in_typescript = lambda *place: typescript(*place, args.node_modules)
        cases.insert(1, ("generated TypeScript client", in_typescript))
    else:
        skipped = 1
    with server(args.abp) as (base, key), tempfile.TemporaryDirectory() as folder:
        for name, check in cases:
            good = check(base, key, folder)
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {name}")
    print(f"{len(cases) - failed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


main()
