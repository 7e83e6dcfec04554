"""Servers of objects that tests start and disturb: moto, which is a real S3 server in memory; a web server of a folder; and
a proxy before either that delays answers, cuts them, refuses requests and checks their signatures.

S3's signatures are checked by botocore, which computes them anew from the request that came over the wire.
"""
import hashlib
import http.client
import http.server
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.request
from email.utils import formatdate
from pathlib import Path

from ports import free_port
from waiting import wait_until

HOME = Path(os.environ.get("LEVIN_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "levin")
PACKAGES = HOME / "storage-python"
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"  # of Amazon's documentation


# The environment without the machine's own stores and proxies.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}


def variables(url):
    """Returns the variables with which programs use the S3 server at `url`."""
    return {"AWS_ENDPOINT_URL_S3": url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


def missing():
    """Returns why S3's server cannot run here; "" if it can."""
    if (PACKAGES / "moto").is_dir():
        return ""
    return "moto, a server that speaks S3's protocol, is not installed. ./dev check installs it (35 MB to download)"


class Moto:
    """An S3 server in a process of its own."""

    def __init__(self, log):
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(self.port)],
            env={**os.environ, "PYTHONPATH": str(PACKAGES), "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
            stdout=log, stderr=subprocess.STDOUT)
        wait_until(self.is_up, "the start of the S3 server")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError("moto has ended")
        try:
            with urllib.request.urlopen(self.url + "/moto-api/", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def client(self):
        """Returns boto3's client of this server."""
        if str(PACKAGES) not in sys.path:
            sys.path.insert(0, str(PACKAGES))
        import boto3  # noqa: PLC0415  (seconds)
        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                            region_name="us-east-1")

    def stop(self):
        self.process.kill()
        self.process.wait()


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):  # clients end in the middle of an answer
            super().handle_error(request, client_address)


class Server:
    """A web server on a thread of its own. `requests` has (method, path, headers, connection) of each request."""

    def __init__(self, handler, certificate=None):
        self.requests = []
        self.lock = threading.Lock()
        self.server = QuietServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.server.owner = self
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def stop(self):
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()

    def count(self, method=None):
        with self.lock:
            return sum(method in (None, each[0]) for each in self.requests)

    def connections(self):
        with self.lock:
            return {each[3] for each in self.requests}

    def clear(self):
        with self.lock:
            self.requests.clear()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def record(self):
        with self.server.owner.lock:
            self.server.owner.requests.append((self.command, self.path, dict(self.headers), self.client_address))

    def reply(self, status, headers, body=b""):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class FolderServer(Server):
    """A web server of a folder, with ranges and etags, as nginx has them; or without (`ranges`, `heads`)."""

    def __init__(self, folder, ranges=True, heads=True, headers=(), certificate=None):
        self.folder, self.ranges, self.heads, self.headers = Path(folder), ranges, heads, list(headers)
        super().__init__(FolderHandler, certificate)


class FolderHandler(Handler):
    def do_GET(self):
        owner = self.server.owner
        self.record()
        if self.command == "HEAD" and not owner.heads:
            return self.reply(405, [("Content-Length", "0")])
        path = owner.folder / urllib.request.unquote(self.path.partition("?")[0].lstrip("/"))
        if not path.is_file():
            return self.reply(404, [("Content-Length", "9")], b"not found")
        body, stat = path.read_bytes(), path.stat()
        etag, date = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"', formatdate(stat.st_mtime, usegmt=True)
        headers = [("ETag", etag), ("Last-Modified", date), *owner.headers]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if owner.ranges and wanted and self.headers.get("If-Range", etag) in (etag, date):
            first, last = int(wanted[1]), min(int(wanted[2] or len(body) - 1), len(body) - 1)
            if first >= len(body):
                return self.reply(416, [("Content-Range", f"bytes */{len(body)}"), ("Content-Length", "0")])
            part = body[first:last + 1]
            return self.reply(206, [*headers, ("Content-Range", f"bytes {first}-{last}/{len(body)}"),
                                    ("Content-Length", str(len(part)))], part)
        return self.reply(200, [*headers, ("Content-Length", str(len(body)))], body)

    do_HEAD = do_PUT = do_DELETE = do_GET


class Fault:
    """What happens to requests that match: `count` of them, after `skip` others."""

    def __init__(self, kind, method="", path="", count=1, skip=0, **more):
        self.kind, self.method, self.path, self.count, self.skip, self.more = kind, method, path, count, skip, more

    def takes(self, method, path):
        if self.count <= 0 or self.method not in ("", method) or not re.search(self.path, path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.count -= 1
        return True


class Proxy(Server):
    """Stands before a server. `faults`: a list that tests change at any time; `latency`: seconds before each answer;
    `signed`: refuses requests whose signature or payload is wrong."""

    def __init__(self, port, signed=False):
        self.upstream, self.signed, self.faults, self.latency = port, signed, [], 0.0
        self.page_size = 0  # of lists of S3; 0: the server's
        self.go = threading.Event()  # lets requests on that are held
        self.released = threading.Event()  # lets stalled answers end
        self.secrets = {KEY: (SECRET, None)}  # of access keys: secret and token
        super().__init__(ProxyHandler)

    def stop(self):
        self.released.set()
        self.go.set()
        super().stop()

    def fault_for(self, method, path):
        with self.lock:
            return next((each for each in self.faults if each.takes(method, path)), None)


def error_body(code, message, more=""):
    error = f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{error}'.encode()


class ProxyHandler(Handler):
    def do_GET(self):
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.record()
        if owner.latency:
            owner.released.wait(owner.latency)
        if owner.signed and (problem := self.signature_problem(body)):
            answer = error_body(*problem)
            return self.reply(403, [("Content-Type", "application/xml"), ("Content-Length", str(len(answer)))], answer)
        fault = owner.fault_for(self.command, self.path)
        if fault is not None and fault.kind in ("status", "reset", "stall"):
            return getattr(self, fault.kind)(**fault.more)
        if fault is not None and fault.kind == "hold":
            self.server.owner.go.wait(60)
            fault = None
        status, headers, answer = self.forward(body)
        if fault is None:
            return self.reply(status, headers, answer)
        return getattr(self, fault.kind)(status, headers, answer, **fault.more)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def forward(self, body):
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.owner.upstream, timeout=60)
        try:
            size = self.server.owner.page_size if "list-type" in self.path else 0
            upstream.putrequest(self.command, self.path + (f"&max-keys={size}" if size else ""), skip_host=True,
                                skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            data = answer.read()
            headers = [(name, value) for name, value in answer.getheaders()
                       if name.lower() not in ("connection", "transfer-encoding", "content-length", "server", "date")]
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            return answer.status, [*headers, ("Content-Length", length or str(len(data)))], data
        finally:
            upstream.close()

    # ---- faults

    def status(self, code, body=b"", headers=()):
        self.reply(code, [("Content-Length", str(len(body))), *headers], body)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def stall(self):
        self.server.owner.released.wait(60)
        self.close_connection = True

    def lose_answer(self, status, headers, body):
        """The server has done it, and the client does not learn it."""
        self.close_connection = True

    def cut(self, status, headers, body, after):
        """The connection ends after so many bytes."""
        self.reply(status, headers, body[:after])
        self.close_connection = True

    def cut_and_shorten(self, status, headers, body, after):
        """As a broken proxy: a part of the body, as if it were the whole."""
        headers = [each for each in headers if each[0] != "Content-Length"] + [("Content-Length", str(after))]
        self.reply(status, headers, body[:after])

    def stall_after(self, status, headers, body, after):
        self.reply(status, headers, body[:after])
        self.wfile.flush()
        self.stall()

    def trickle(self, status, headers, body, rate):
        """So many bytes a second, for ever."""
        self.reply(status, headers, b"")
        for at in range(0, len(body), max(1, rate // 10)):
            self.wfile.write(body[at:at + max(1, rate // 10)])
            self.wfile.flush()
            if self.server.owner.released.wait(0.1):
                break
        self.close_connection = True

    def flip(self, status, headers, body, at):
        self.reply(status, headers, body[:at] + bytes([body[at] ^ 1]) + body[at + 1:])

    def with_headers(self, status, headers, body, more, without=()):
        headers = [each for each in headers if each[0].lower() not in without]
        self.reply(status, [*headers, *more], body)

    # ---- signatures

    def signature_problem(self, body):
        """Returns (code, message) as S3 gives them; nothing if the request is signed correctly."""
        if str(PACKAGES) not in sys.path:
            sys.path.insert(0, str(PACKAGES))
        from botocore.auth import S3SigV4Auth  # noqa: PLC0415
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.credentials import Credentials  # noqa: PLC0415

        given = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?"
                             r"Signature=([0-9a-f]{64})", self.headers.get("Authorization", ""))
        if not given:
            return "AccessDenied", "Access Denied"
        key, _, region, names, signature = given.groups()
        if key not in self.server.owner.secrets:
            return "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
        secret, token = self.server.owner.secrets[key]
        if token == "expired":
            return "ExpiredToken", "The provided token has expired."
        if self.headers.get("x-amz-security-token") != token:
            return "InvalidToken", "The provided token is malformed or otherwise invalid."
        if self.headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
            return "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed."
        signed = {name: self.headers[name] for name in names.split(";")}
        if any(name.lower().startswith("x-amz-") and name.lower() not in signed for name in self.headers) or "host" not in signed:
            return "AccessDenied", "There were headers present in the request which were not signed"
        request = AWSRequest(self.command, f"http://{self.headers['Host']}{self.path}", headers=signed)
        request.context["timestamp"] = self.headers["x-amz-date"]
        auth = S3SigV4Auth(Credentials(key, secret, token), "s3", region)
        expected = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        if signature == expected:
            return None
        return "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
