"""A whole session with a client that was generated from /openapi.json.

Submits a run twice under one idempotency key, reads its events page by page, looks at its changes, has
its receipt judged, discards it, and is refused what it may not have.
"""

import sys
from time import monotonic, sleep
from uuid import uuid4

from abp_client import AuthenticatedClient
from abp_client.api.default import (
    cancel_run,
    discard_run,
    get_checkpoint,
    get_run,
    get_run_diff,
    list_backends,
    list_run_events,
    list_runs,
    submit_run,
)
from abp_client.models.cancel_request_body import CancelRequestBody
from abp_client.models.error_body import ErrorBody
from abp_client.models.no_query import NoQuery
from abp_client.models.submit_request import SubmitRequest


def main():
    base, key = sys.argv[1:]
    client = AuthenticatedClient(base_url=base, token=key)
    backends = list_backends.sync(client=client).backends
    assert "mock" in [backend.name for backend in backends], backends

    order = {"task": "say hello"}
    request = SubmitRequest.from_dict({"order": order, "backend": "mock"})
    first = submit_run.sync(client=client, body=request, idempotency_key="session")
    again = submit_run.sync(client=client, body=request, idempotency_key="session")
    assert first.run_id == again.run_id and again.is_replay, (first, again)
    other = SubmitRequest.from_dict({"order": {"task": "say more"}})
    refused = submit_run.sync(client=client, body=other, idempotency_key="session")
    assert isinstance(refused, ErrorBody) and refused.error.code == "IDEMPOTENCY_KEY_REUSED", refused

    run_id = first.run_id
    deadline = monotonic() + 60
    while get_run.sync(run_id, client=client).state != "complete":
        assert monotonic() < deadline, get_run.sync(run_id, client=client)
        sleep(0.05)
    numbers, after = [], None
    while True:
        more = {} if after is None else {"after_seq": after}
        page = list_run_events.sync(run_id, client=client, limit=2, **more)
        numbers += [event.seq for event in page.events]
        after = page.next_after_seq
        if page.is_end:
            break
    assert numbers == list(range(len(numbers))) and numbers, numbers

    changes = get_run_diff.sync(run_id, client=client)
    assert "abp-hello.md" in changes.diff, changes
    # The generator makes two classes of one name for levels of support, so receipts are read as JSON.
    http = client.get_httpx_client()
    receipt = http.get(f"/v1/runs/{run_id}/receipt")
    assert receipt.json()["outcome"] == "complete", receipt.text
    headers = {"content-type": "application/json"}
    judged = http.post("/v1/receipts/verify", content=receipt.content, headers=headers)
    assert judged.json()["verdict"] == "proven", judged.text
    assert get_checkpoint.sync(client=client).size > 0
    assert discard_run.sync(run_id, client=client, body=NoQuery()).is_changed
    assert run_id in [run.run_id for run in list_runs.sync(client=client, limit=10).runs]

    unknown = cancel_run.sync(uuid4(), client=client, body=CancelRequestBody())
    assert isinstance(unknown, ErrorBody) and unknown.error.code == "NOT_FOUND", unknown
    stranger = AuthenticatedClient(base_url=base, token="abp_nobody")
    refused = list_runs.sync(client=stranger)
    assert isinstance(refused, ErrorBody) and refused.error.code == "UNAUTHENTICATED", refused


main()
