"""A Hugging Face hub on this machine, as far as an upload needs one: repositories, large files, commits."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """What was made and uploaded: repositories with their options, and their files by name."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        self.tokens: set[str] = set()
        self.messages: list[str] = []
        self.address = ""


@contextmanager
def local_hub() -> Iterator[Hub]:
    """A hub while the block runs; its address is that of an `HfApi`'s `endpoint`."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_) -> None:
            pass

        def answer(self, content: dict | None = None, code: int = 200) -> None:
            body = json.dumps(content or {}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def do_PUT(self) -> None:
            hub.objects[self.path.rpartition("/")[2]] = self.body()
            self.answer()

        def do_POST(self) -> None:
            hub.tokens.add(self.headers.get("Authorization", ""))
            if self.path == "/api/repos/create":
                asked = json.loads(self.body())
                name = f"{asked['organization']}/{asked['name']}"
                hub.repositories[name] = asked
                self.answer({"url": f"{hub.address}/{name}", "name": name, "id": name})
            elif self.path == "/api/validate-yaml":
                self.body()
                self.answer({"errors": [], "warnings": []})
            elif "/preupload/" in self.path:
                files = json.loads(self.body())["files"]
                modes = {file["path"]: "lfs" if file["path"].endswith(".safetensors") else "regular" for file in files}
                told = [{"path": p, "uploadMode": m, "shouldIgnore": False, "oid": None} for p, m in modes.items()]
                self.answer({"files": told})
            elif self.path.endswith("/info/lfs/objects/batch"):
                asked = json.loads(self.body())["objects"]
                actions = {o["oid"]: {"upload": {"href": f"{hub.address}/store/{o['oid']}"}} for o in asked}
                told = [{"oid": o["oid"], "size": o["size"], "actions": actions[o["oid"]]} for o in asked]
                self.answer({"transfer": "basic", "objects": told})
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
                self.commit(found[1])
            else:
                self.answer({"error": f"no such address {self.path}"}, 404)

        def commit(self, name: str) -> None:
            lines = [json.loads(line) for line in self.body().decode().splitlines()]
            files = hub.files.setdefault(name, {})
            for line in lines:
                value = line["value"]
                if line["key"] == "header":
                    hub.messages.append(value["summary"])
                elif line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = hub.objects[value["oid"]]
            address = f"{hub.address}/{name}/commit/{'0' * 40}"
            self.answer({"commitUrl": address, "commitOid": "0" * 40, "success": True})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()
