"""What the vendors offer besides models that answer: embeddings, files, batches."""

import base64
import itertools
import struct


def vector(text):
    """Numbers that a float of 32 bits holds as they are."""
    data = text.encode()
    return [len(data) / 4, -data[0] / 8, 0.5]


def openai_embeddings(body):
    assert set(body) <= {"model", "input", "encoding_format"}, body
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    pack = lambda numbers: base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    form = pack if body.get("encoding_format") == "base64" else list
    data = [
        {"object": "embedding", "index": at, "embedding": form(vector(text))}
        for at, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def gemini_embeddings(body):
    text = lambda one: "".join(part["text"] for part in one["content"]["parts"])
    return {"embeddings": [{"values": vector(text(one))} for one in body["requests"]]}


class Files:
    """Files, and batches that write theirs in capital letters."""

    def __init__(self):
        self.numbers = itertools.count(1)
        self.files, self.batches = {}, {}

    def make(self, content):
        id = f"file-{next(self.numbers)}"
        self.files[id] = content
        return self.describe(id)

    def describe(self, id):
        facts = {"bytes": len(self.files[id]), "created_at": 1, "filename": "f", "status": "processed"}
        return {"id": id, "object": "file", "purpose": "batch", **facts}

    def upload(self, content_type, body):
        """The file in a form; what is around it is the SDK's business."""
        boundary = b"--" + content_type.partition("boundary=")[2].strip('"').encode()
        for part in body.split(boundary):
            head, _, content = part.partition(b"\r\n\r\n")
            if b'name="file"' in head:
                return self.make(content.removesuffix(b"\r\n"))
        raise AssertionError("a form without a file")

    def batch(self, body):
        id = f"batch-{next(self.numbers)}"
        output = self.make(self.files[body["input_file_id"]].decode().upper().encode())
        facts = {"endpoint": body["endpoint"], "completion_window": "24h", "created_at": 1}
        batch = {"id": id, "object": "batch", "input_file_id": body["input_file_id"], **facts}
        self.batches[id] = {**batch, "status": "completed", "output_file_id": output["id"]}
        return {**batch, "status": "validating"}
