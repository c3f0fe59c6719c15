"""Does jobs with the vendors' Python SDKs.

One job per line of standard input, what was seen per line of standard output, in the same order:

    {"sdk": "anthropic", "do": "ask", "model": "via-openai", ...}
    {"text": "...", "calls": [], ...}                                   what the SDK handed out
    {"error": "RateLimitError", "status": 429, "message": "..."}        what it raised
"""

import argparse
import json
import sys
import warnings

from sdks import anthropic_sdk, google_sdk, langchain_sdk, openai_sdk

SDKS = {
    "openai chat": openai_sdk.Chat,
    "openai responses": openai_sdk.Responses,
    "anthropic": anthropic_sdk.Messages,
    "google-genai": google_sdk.GenerateContent,
    "langchain-openai chat": langchain_sdk.OpenAI,
    "langchain-openai responses": langchain_sdk.OpenAIResponses,
    "langchain-anthropic": langchain_sdk.Anthropic,
}


def raised(error):
    """An exception, as far as its class lets a program tell what happened."""
    told = {"error": type(error).__name__, "message": str(error)}
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    if isinstance(status, int):
        told["status"] = status
    response = getattr(error, "response", None)
    if response is not None and "retry-after" in response.headers:
        told["retry_after"] = response.headers["retry-after"]
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", required=True)
    args = parser.parse_args()
    # Words about models that the SDKs do not know by name.
    warnings.simplefilter("ignore")
    clients = {}
    for line in sys.stdin:
        job = json.loads(line)
        key = job.get("key", args.key)
        client = clients.get((job["sdk"], key)) or SDKS[job["sdk"]](args.url, key)
        clients[job["sdk"], key] = client
        try:
            seen = getattr(client, job["do"])(job)
        except Exception as error:  # Whatever an SDK raises is a result.
            seen = raised(error)
        print(json.dumps(seen), flush=True)


main()
