"""Object stores between real servers and a driven program: moto for S3, a web server, and a proxy that disturbs both.

    storage_test.py PROGRAM [TEST …]
"""
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import object_servers  # noqa: E402
from object_servers import CLEAN, KEY, SECRET, Fault, FolderServer, Moto, Proxy, error_body  # noqa: E402
from waiting import wait_until  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
QUICK = {"attempts": 3, "first_pause": 0.01, "stall_timeout": 20}
MIB = 1 << 20


class Store:
    """A store in a process of its own. Calls return its results; errors are {"error": text}."""

    def __init__(self, url, limits=None, env=None):
        self.process = subprocess.Popen([PROGRAM, url, json.dumps({**QUICK, **(limits or {})})], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env={**CLEAN, **(env or {})})
        self.opened = json.loads(self.process.stdout.readline())

    def send(self, *call):
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def __call__(self, *call):
        self.send(*call)
        return self.answer()

    def error(self, *call):
        answer = self(*call)
        if not isinstance(answer, dict) or "error" not in answer:
            raise AssertionError(f"expected an error, got {answer}")
        return answer["error"]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class StorageTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="levin-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.target = self.folder / "cache" / "file"

    def store(self, url, limits=None, env=None):
        store = Store(url, limits, env)
        self.addCleanup(store.close)
        return store

    def assert_nothing_left(self, path=None):
        """No file, whole or unfinished, is in the folder of the target."""
        folder = (path or self.target).parent
        self.assertEqual([each.name for each in folder.iterdir()] if folder.is_dir() else [], [])


class WebServers(StorageTest):
    """Web servers: here every failure is a question of HTTP alone."""

    def setUp(self):
        super().setUp()
        self.files = self.folder / "files"
        self.files.mkdir()
        self.content = os.urandom(3 * MIB)
        (self.files / "a.bin").write_bytes(self.content)
        self.server = FolderServer(self.files)
        self.addCleanup(self.server.stop)
        self.proxy = Proxy(self.server.port)
        self.addCleanup(self.proxy.stop)

    def web_store(self, limits=None, query="", env=None):
        return self.store(self.proxy.url + "/" + query, limits, env)

    def test_finds_reads_and_fetches(self):
        store = self.web_store()
        found = store("find", "a.bin")
        self.assertEqual((found["key"], found["size"]), ("a.bin", 3 * MIB))
        self.assertNotEqual(found["etag"], "")
        self.assertIsNone(store("find", "b.bin"))
        self.assertEqual(bytes.fromhex(store("read", "a.bin")), self.content)
        self.assertEqual(bytes.fromhex(store("read", "a.bin", 1000, 50)), self.content[1000:1050])
        self.assertEqual(bytes.fromhex(store("read", "a.bin", 3 * MIB - 5)), self.content[-5:])
        self.assertEqual(bytes.fromhex(store("read", "a.bin", 3 * MIB - 5, 100)), self.content[-5:])
        self.assertEqual(store("read", "a.bin", 3 * MIB, 100), "")
        self.assertEqual(store("read", "a.bin", 0, 0), "")
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), self.content)
        self.assertEqual(self.target.parent, next(self.folder.glob("cache")))
        self.assertEqual([each.name for each in self.target.parent.iterdir()], ["file"])

    def test_fetches_an_empty_file_and_one_with_a_difficult_name(self):
        name = "a b+c%41?d#é'=&.bin"
        (self.files / name).write_bytes(b"x")
        (self.files / "empty").write_bytes(b"")
        store = self.web_store()
        self.assertEqual(store("read", name), "78")
        self.assertIs(store("fetch", "empty", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), b"")
        self.assertEqual(store("find", "empty")["size"], 0)

    def test_a_server_without_head_is_asked_for_a_byte(self):
        self.server.heads = False
        self.assertEqual(self.web_store()("find", "a.bin")["size"], 3 * MIB)
        self.server.ranges = False
        self.assertEqual(self.web_store()("find", "a.bin")["size"], 3 * MIB)
        self.assertIsNone(self.web_store()("find", "b.bin"))

    def test_a_server_without_ranges_gives_whole_files_alone(self):
        self.server.ranges = False
        store = self.web_store()
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        self.assertEqual(bytes.fromhex(store("read", "a.bin", 0, 20)), self.content[:20])
        self.assertEqual(store.error("read", "a.bin", 5, 10),
                         f"cannot read {self.proxy.url}/a.bin: the server sends the whole object instead of a "
                         f"part of it (attempt 1 "
                         "of 3). Use a server that answers requests with a range, such as nginx, Apache or S3.")

    def test_neither_lists_nor_writes(self):
        store, url = self.web_store(), self.proxy.url
        self.assertEqual(store.error("list", ""),
                         f"cannot list {url}/: a web server has no listing of its files. Name the files in an "
                         f"index.json there, or "
                         "by a pattern such as \"train-{000..099}.tar\"; or use the bucket's s3:// URL.")
        refused = f"cannot write {url}/x: a web server's files can only be read. Write to a folder or to an s3:// URL."
        self.assertEqual(store.error("put", "x", "00"), refused)
        self.assertEqual(store.error("put_if_absent", "x", "00"), refused)
        self.assertEqual(store.error("put_file", "x", str(self.files / "a.bin")), refused)
        self.assertEqual(store.error("remove", "x"), refused)
        self.assertEqual(store.error("read", "../x"),
                         f"the key \"../x\" does not name a file below {url}/. A key is a relative path without \"..\", such as "
                         "\"train/00001.mds\".")

    def test_a_missing_file_is_asked_for_once(self):
        store = self.web_store()
        self.assertEqual(store.error("fetch", "b.bin", str(self.target)),
                         f"cannot fetch {self.proxy.url}/b.bin to {self.target}: the server answered HTTP "
                         f"status 404 (attempt 1 of "
                         "3). Check the URL, the network, and that the server gives this file to you: curl -I shows its answer.")
        self.assertEqual(self.proxy.count(), 1)
        self.assert_nothing_left()

    def test_busy_servers_and_lost_connections_are_asked_again(self):
        store = self.web_store({"stall_timeout": 2})
        for fault in ([Fault("status", code=503), Fault("status", code=500)], [Fault("status", code=429)],
                      [Fault("status", code=408)],
                      [Fault("reset", count=2)], [Fault("lose_answer", count=2)], [Fault("stall")]):
            for call in (["find", "a.bin"], ["read", "a.bin"], ["fetch", "a.bin", str(self.target)]):
                with self.subTest(fault=fault[0].kind, call=call[0]):
                    self.proxy.faults = [Fault(each.kind, count=each.count, **each.more) for each in fault]
                    answer = store(*call)
                    self.assertNotIn("error", answer if isinstance(answer, dict) else {})
                    self.assertFalse(any(each.count for each in self.proxy.faults))
        self.assertEqual(self.target.read_bytes(), self.content)

    def test_a_server_that_stays_busy_is_given_up(self):
        self.proxy.faults = [Fault("status", code=503, count=99)]
        store = self.web_store()
        self.assertIn("/a.bin: the server answered HTTP status 503 (attempt 3 of 3).", store.error("read", "a.bin"))
        self.assertEqual(self.proxy.count(), 3)

    def test_waits_as_long_as_the_server_asks(self):
        self.proxy.faults = [Fault("status", code=503, headers=[("Retry-After", "1")])]
        store, began = self.web_store(), time.monotonic()
        store("read", "a.bin", 0, 1)
        self.assertGreater(time.monotonic() - began, 0.9)

    def test_a_broken_transfer_continues_where_it_broke(self):
        self.proxy.faults = [Fault("cut", count=2, after=MIB)]
        store = self.web_store()
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), self.content)
        self.assertEqual([each[2].get("Range") for each in self.proxy.requests], [None, f"bytes={MIB}-", f"bytes={2 * MIB}-"])

    def test_progress_makes_any_number_of_breaks_bearable(self):
        self.proxy.faults = [Fault("cut", count=9, after=300 << 10)]
        store = self.web_store()
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), self.content)
        self.assertEqual(self.proxy.count(), 10)

    def test_a_transfer_without_progress_is_given_up_and_leaves_nothing(self):
        self.proxy.faults = [Fault("cut", count=99, after=1000)]
        store = self.web_store()
        error = store.error("fetch", "a.bin", str(self.target))
        self.assertIn(f"cannot fetch {self.proxy.url}/a.bin to {self.target}: the connection failed after 3000 bytes: ", error)
        self.assertIn("(attempt 3 of 3). Check the URL, the network, ", error)
        self.assert_nothing_left()

    def test_a_stall_in_the_middle_and_a_slow_link_are_broken_transfers(self):
        self.proxy.faults = [Fault("stall_after", after=MIB), Fault("trickle", rate=400)]
        store = self.web_store({"stall_timeout": 2})
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), self.content)
        self.assertEqual(self.proxy.count(), 3)
        self.proxy.faults = [Fault("trickle", rate=400, count=9)]
        self.assertIn("Operation too slow. Less than 1000 bytes/sec transferred the last 2 seconds (attempt 3 of 3).",
                      store.error("read", "a.bin"))

    def test_an_object_that_changes_meanwhile_is_read_anew(self):
        self.proxy.faults = [Fault("cut", after=MIB), Fault("hold")]
        store = self.web_store()
        store.send("fetch", "a.bin", str(self.target))
        wait_until(lambda: self.proxy.count() == 2, "the second request")
        other = os.urandom(2 * MIB)
        (self.files / "new").write_bytes(other)
        os.replace(self.files / "new", self.files / "a.bin")
        self.proxy.go.set()
        self.assertIs(store.answer(), True)
        self.assertEqual(self.target.read_bytes(), other)

    def test_a_server_that_names_no_version_is_read_from_the_start(self):
        self.proxy.faults = [Fault("with_headers", more=[], without=("etag", "last-modified"))]
        store = self.web_store()
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        # The answer is cut, and without a version the second request is for the whole.
        (self.files / "b.bin").write_bytes(self.content)
        self.server.ranges = False
        self.proxy.clear()
        self.proxy.faults = [Fault("cut", after=2 * MIB)]
        self.assertIs(store("fetch", "b.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), self.content)

    def test_the_servers_checksum_is_compared(self):
        md5 = base64.b64encode(hashlib.md5(self.content).digest()).decode()
        self.server.headers = [("Content-MD5", md5)]
        self.proxy.faults = [Fault("flip", at=77)]
        store = self.web_store()
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)  # the second time
        self.assertEqual(self.target.read_bytes(), self.content)
        flipped = self.content[:77] + bytes([self.content[77] ^ 1]) + self.content[78:]
        self.proxy.faults = [Fault("flip", at=77, count=9)]
        self.target.unlink()
        self.assertIn(f": the wrong bytes came ({3 * MIB} of them): expected the server's MD5 "
                      f"{hashlib.md5(self.content).hexdigest()}, "
                      f"got {hashlib.md5(flipped).hexdigest()} (attempt 3 of 3).",
                      store.error("fetch", "a.bin", str(self.target)))
        self.assert_nothing_left()

    def test_a_range_that_was_not_asked_for_is_not_used(self):
        wrong = [("Content-Range", f"bytes 0-{MIB - 1}/{3 * MIB}")]
        self.proxy.faults = [Fault("cut", after=MIB),
                             Fault("with_headers", more=wrong, without=("content-range",))]
        store = self.web_store()
        self.assertIs(store("fetch", "a.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), self.content)
        self.proxy.faults = [Fault("with_headers", more=wrong, without=("content-range",), count=9)]
        self.assertIn(f": the server sent the range \"bytes 0-{MIB - 1}/{3 * MIB}\" instead of \"bytes=10-19\" (attempt 3 of 3).",
                      store.error("read", "a.bin", 10, 10))

    def test_an_abandoned_transfer_ends_at_once_and_leaves_nothing(self):
        self.proxy.faults = [Fault("stall", count=9)]
        store = self.web_store({"stall_timeout": 60})
        store.send("fetch_until_line", "a.bin", str(self.target))
        wait_until(lambda: self.proxy.count() == 1, "the request")
        began = time.monotonic()
        self.assertEqual(store("stop"), {"error": f"cannot fetch {self.proxy.url}/a.bin to {self.target}: it was cancelled."})
        self.assertLess(time.monotonic() - began, 10)
        self.assert_nothing_left()

    def test_an_abandoned_pause_ends_at_once(self):
        self.proxy.faults = [Fault("status", code=503, count=9)]
        store = self.web_store({"first_pause": 60})
        store.send("fetch_until_line", "a.bin", str(self.target))
        wait_until(lambda: self.proxy.count() == 1, "the request")
        began = time.monotonic()
        self.assertIn("it was cancelled", store("stop")["error"])
        self.assertLess(time.monotonic() - began, 10)

    def test_requests_share_their_connections(self):
        store = self.web_store()
        for _ in range(20):
            store("read", "a.bin", 5, 5)
            store("find", "a.bin")
        self.assertEqual(len(self.proxy.connections()), 1)
        self.proxy.clear()
        results = store("read_all", ["a.bin"] * 40, 4)["results"]
        self.assertEqual(results, [3 * MIB] * 40)
        self.assertLessEqual(len(self.proxy.connections()), 4)

    def test_a_kept_connection_that_the_server_has_closed_is_replaced(self):
        store = self.web_store({"attempts": 1})
        self.assertEqual(store("find", "a.bin")["size"], 3 * MIB)
        self.proxy.faults = [Fault("lose_answer", count=1)]  # as a server does that closes an idle connection
        self.assertEqual(store("find", "a.bin")["size"], 3 * MIB)
        self.assertEqual(len(self.proxy.connections()), 2)

    def test_certificates_of_an_authority_of_ones_own(self):
        certificate = self.folder / "server.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out", self.folder / "ca.pem"],
                       check=True, stderr=subprocess.DEVNULL)
        with open(certificate, "a") as file:
            file.write((self.folder / "ca.pem").read_text())
        server = FolderServer(self.files, certificate=certificate)
        self.addCleanup(server.stop)
        store = self.store(server.url, env={"CURL_CA_BUNDLE": str(self.folder / "ca.pem")})
        for _ in range(3):
            self.assertEqual(store("find", "a.bin")["size"], 3 * MIB)
        self.assertEqual(len(server.connections()), 1)
        error = self.store(server.url).error("find", "a.bin")
        self.assertIn("SSL certificate problem: self-signed certificate (attempt 1 of 3).", error)
        bucket = self.store("s3://bucket", env={"AWS_ENDPOINT_URL_S3": server.url, "AWS_CA_BUNDLE": str(self.folder / "ca.pem"),
                                                "HOME": str(self.folder)})
        self.assertIsNone(bucket("find", "a.bin"))  # the server answers 404
        self.assertEqual(server.requests[-1][1], "/bucket/a.bin")

    def test_a_query_and_a_password_go_along_and_stay_out_of_messages(self):
        store = self.store(self.proxy.url.replace("://", "://me:pass%40word@") + "/?token=abc&x=1")
        store("find", "a.bin")
        self.assertEqual(self.proxy.requests[0][1], "/a.bin?token=abc&x=1")
        self.assertEqual(self.proxy.requests[0][2]["Authorization"], "Basic bWU6cGFzc0B3b3Jk")
        self.proxy.faults = [Fault("status", code=401)]
        error = store.error("read", "a.bin")
        self.assertIn(f"cannot read {self.proxy.url}/a.bin: the server answered HTTP status 401", error)
        self.assertNotIn("abc", error)
        self.assertNotIn("word", error)

    def test_a_full_disk_is_named_and_not_asked_again(self):
        with subprocess.Popen(["bash", "-c", f'ulimit -f 1024; trap "" XFSZ; exec "{PROGRAM}" "{self.proxy.url}"'], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=CLEAN) as process:
            process.stdout.readline()
            answer, _ = process.communicate(json.dumps(["fetch", "a.bin", str(self.target)]) + "\n")
        self.assertIn(f"to {self.target}: cannot write it: File too large (attempt 1 of 8). Raise the limit on the size of "
                      "files (ulimit -f).", json.loads(answer)["error"])
        self.assertEqual(self.proxy.count(), 1)
        self.assert_nothing_left()

    def test_a_server_that_is_gone_is_named(self):
        url = self.proxy.url
        store = self.web_store()
        self.proxy.stop()
        error = store.error("read", "a.bin")
        self.assertIn(f"cannot read {url}/a.bin: the connection failed after 0 bytes: Failed to connect to 127.0.0.1 port", error)


class S3(StorageTest):
    """moto, behind a proxy that checks every signature as S3 does."""

    @classmethod
    def setUpClass(cls):
        log = tempfile.TemporaryFile()
        cls.addClassCleanup(log.close)
        cls.moto = Moto(log)
        cls.addClassCleanup(cls.moto.stop)
        cls.client = cls.moto.client()

    def setUp(self):
        super().setUp()
        self.bucket = "b" + hashlib.md5(self.id().encode()).hexdigest()
        self.client.create_bucket(Bucket=self.bucket)
        self.proxy = Proxy(self.moto.port, signed=True)
        self.addCleanup(self.proxy.stop)
        self.env = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL_S3": self.proxy.url,
                    "HOME": str(self.folder)}

    def s3(self, prefix="/data", limits=None, **env):
        settings = {name: value for name, value in {**self.env, **env}.items() if value is not None}
        return self.store(f"s3://{self.bucket}{prefix}", limits, settings)

    def put(self, key, content):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def get(self, key):
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def url(self, key=""):
        return f"s3://{self.bucket}/data/{key}"

    def test_what_is_written_is_read_by_amazons_client_and_the_reverse(self):
        store, content = self.s3(), os.urandom(2 * MIB)
        self.assertIs(store("put", "a/b.bin", content[:1000].hex()), True)
        self.assertEqual(self.get("data/a/b.bin"), content[:1000])
        self.put("data/c.bin", content)
        self.assertEqual(bytes.fromhex(store("read", "c.bin")), content)
        self.assertEqual(bytes.fromhex(store("read", "c.bin", 77, 5)), content[77:82])
        self.assertEqual(bytes.fromhex(store("read", "c.bin", 2 * MIB - 1, 500)), content[-1:])
        self.assertEqual(store("read", "c.bin", 2 * MIB, 500), "")
        self.assertEqual(store("find", "c.bin"), {"key": "c.bin", "size": 2 * MIB, "etag": hashlib.md5(content).hexdigest()})
        self.assertIsNone(store("find", "d.bin"))
        self.assertIs(store("fetch", "c.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), content)
        self.assertIs(store("put_file", "d.bin", str(self.target)), True)
        self.assertEqual(self.get("data/d.bin"), content)
        self.assertIs(store("remove", "d.bin"), True)
        self.assertIs(store("remove", "d.bin"), True)
        self.assertIsNone(store("find", "d.bin"))
        self.assertIs(store("put", "empty", ""), True)
        self.assertEqual(store("read", "empty"), "")
        self.assertIs(store("fetch", "empty", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), b"")

    def test_difficult_keys(self):
        names = ["a=b/c=d.parquet", "a b", "a+b", "a%20b", "a&b=c", "é/ü.bin", "(x)'*!~", "a//b", "@:,;$", "epoch=0-step=10.ckpt",
                 "a?b#c", "[1]{2}|^`<>\"\\"]
        store = self.s3()
        for name in names:
            with self.subTest(name=name):
                self.assertIs(store("put", name, name.encode().hex()), True)
                self.assertEqual(bytes.fromhex(store("read", name)).decode(), name)
                self.assertEqual(store("find", name)["key"], name)
        self.assertEqual([each["key"] for each in store("list", "")], sorted(names, key=str.encode))
        for name in names:
            with self.subTest(prefix=name):
                self.assertIn(name, [each["key"] for each in store("list", name)])
                self.assertIs(store("remove", name), True)
        self.assertEqual(store("list", ""), [])

    def test_a_list_has_several_pages(self):
        for i in range(20):
            self.put(f"data/train/{i:05}", b"x" * (i % 7))
        self.put("data/train/", b"")  # what a console makes for a folder
        self.put("data/val/0", b"")
        self.put("database", b"")
        self.proxy.page_size = 7
        store = self.s3()
        found = store("list", "train/")
        self.assertEqual([(each["key"], each["size"]) for each in found], [(f"train/{i:05}", i % 7) for i in range(20)])
        self.assertEqual(self.proxy.count(), 3)
        self.assertEqual(len(store("list", "")), 21)
        self.assertEqual(store("list", "nothing"), [])
        self.assertEqual(found[6]["etag"], hashlib.md5(b"x" * 6).hexdigest())

    def test_a_list_that_does_not_continue_is_an_error(self):
        for i in range(3):
            self.put(f"data/{i}", b"")
        page = ("<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>data/0</Key><Size>{}</Size></Contents>"
                "{}</ListBucketResult>")
        fix = f"Check the network and AWS_ENDPOINT_URL_S3 ({self.proxy.url})."
        for body, problem in (
                (page.format(0, ""), "the list is cut after 1 object, and the server does not say how it continues."),
                (page.format("many", ""), 'the size of "data/0" is "many", expected a number.'),
                ("<html></html>", 'expected a ListBucketResult, got "html".'),
                ("<ListBucketResult>", 'the server\'s answer is malformed: XML, offset 18: expected "</ListBucketResult>".'),
                ("", "the server's answer is malformed: XML, offset 0: expected an element.")):
            self.proxy.faults = [Fault("status", code=200, body=body.encode())]
            with self.subTest(body=body):
                self.assertEqual(self.s3().error("list", ""), f"cannot list {self.url()}: {problem} {fix}")

    def test_a_large_file_goes_in_parts_and_appears_whole(self):
        content = os.urandom(1 * MIB) * 33 + b"end"  # three parts, the last one short
        source = self.folder / "large"
        source.write_bytes(content)
        store = self.s3()
        self.proxy.faults = [Fault("hold", method="POST", path="uploadId")]
        store.send("put_file", "large.bin", str(source))
        wait_until(lambda: self.proxy.count("POST") == 2, "the end of the upload")
        self.assertNotIn("Contents", self.client.list_objects_v2(Bucket=self.bucket))
        self.proxy.go.set()
        self.assertIs(store.answer(), True)
        self.assertEqual(self.get("data/large.bin"), content)
        self.assertEqual(self.proxy.count("PUT"), 3)
        self.assertEqual(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []), [])
        self.assertEqual(store("find", "large.bin")["size"], len(content))
        self.assertIs(store("fetch", "large.bin", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), content)

    def test_parts_that_fail_for_a_while_are_sent_again(self):
        source = self.folder / "large"
        source.write_bytes(os.urandom(MIB) * 33)
        self.proxy.faults = [Fault("status", "PUT", "partNumber=2&", code=500, body=error_body("InternalError", "Try again.")),
                             Fault("reset", "PUT", "partNumber=1&"), Fault("lose_answer", "PUT", "partNumber=3&"),
                             Fault("lose_answer", "POST", "uploadId="),  # completed, which the client does not learn
                             Fault("status", "POST", "uploads", code=503)]
        store = self.s3()
        self.assertIs(store("put_file", "large.bin", str(source)), True)
        self.assertEqual(self.get("data/large.bin"), source.read_bytes())
        self.assertFalse(any(each.count for each in self.proxy.faults))

    def test_a_failed_upload_leaves_no_parts(self):
        source = self.folder / "large"
        source.write_bytes(os.urandom(MIB) * 33)
        self.put("data/large.bin", b"old")
        store = self.s3()
        for fault, problem in (
                (Fault("status", "PUT", "partNumber=2&", count=99, code=500, body=error_body("InternalError", "We failed.")),
                 "HTTP status 500, InternalError: We failed (attempt 3 of 3)"),
                (Fault("status", "PUT", "partNumber=3&", code=403, body=error_body("AccessDenied", "Access Denied")),
                 "HTTP status 403, AccessDenied: Access Denied (attempt 1 of 3). The credentials came from "
                 "AWS_ACCESS_KEY_ID; they "
                 "need the permission s3:PutObject."),
                (Fault("status", "POST", "uploadId", code=200, count=9, body=error_body("InternalError", "We failed.")),
                 "HTTP status 200, InternalError: We failed (attempt 3 of 3)")):
            self.proxy.faults = [fault]
            error = store.error("put_file", "large.bin", str(source))
            self.assertIn(f"cannot write {source} to {self.url('large.bin')}: the server answered {problem}", error)
            self.assertEqual(self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", []), [])
        self.assertEqual(self.get("data/large.bin"), b"old")

    def test_only_one_of_two_writers_makes_an_object(self):
        one, two = self.s3(), self.s3()
        self.assertIs(one("put_if_absent", "lock", "01"), True)
        self.assertIs(two("put_if_absent", "lock", "02"), False)
        self.assertEqual(self.get("data/lock"), b"\x01")
        self.proxy.faults = [Fault("lose_answer", "PUT")]  # it was written, which the client does not learn
        self.assertIs(one("put_if_absent", "lock2", "03"), True)
        self.proxy.faults = [Fault("status", "PUT", code=503)]
        self.assertIs(two("put_if_absent", "lock2", "04"), False)

    def test_the_etag_of_a_whole_object_is_its_checksum(self):
        content = os.urandom(MIB)
        store = self.s3()
        store("put", "a", content.hex())  # Amazon's client would add a checksum
        self.proxy.faults = [Fault("flip", "GET", at=5)]
        self.assertIs(store("fetch", "a", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), content)
        self.target.unlink()
        self.proxy.faults = [Fault("cut_and_shorten", "GET", count=9, after=1000)]
        self.assertIn(f"the wrong bytes came (1000 of them): expected the server's MD5 {hashlib.md5(content).hexdigest()}, got ",
                      store.error("fetch", "a", str(self.target)))
        self.assert_nothing_left()
        # Encrypted by a key of the user's, the etag is something else.
        self.proxy.faults = [Fault("with_headers", "GET", without=("etag",), more=[
            ("ETag", '"' + "0" * 32 + '"'), ("x-amz-server-side-encryption", "aws:kms")])]
        self.assertIs(store("fetch", "a", str(self.target)), True)

    def test_amazons_checksums_are_compared(self):
        content = os.urandom(MIB)
        for name in ("CRC32", "SHA1", "SHA256"):
            with self.subTest(checksum=name):
                self.client.put_object(Bucket=self.bucket, Key="data/" + name, Body=content, ChecksumAlgorithm=name)
                store = self.s3()
                self.proxy.faults = [Fault("flip", "GET", at=5)]
                self.proxy.clear()
                self.assertIs(store("fetch", name, str(self.target)), True)
                self.assertEqual(self.proxy.count(), 2)
                self.proxy.faults = [Fault("flip", "GET", at=5, count=9)]
                kind = {"CRC32": "CRC-32", "SHA1": "SHA-1", "SHA256": "SHA-256"}[name]
                self.assertIn(f"expected the server's {kind} ", store.error("fetch", name, str(self.target)))

    def test_a_broken_transfer_continues_with_the_same_version_alone(self):
        content, other = os.urandom(2 * MIB), os.urandom(2 * MIB)
        self.put("data/a", content)
        self.proxy.faults = [Fault("cut", "GET", after=MIB)]
        store = self.s3()
        self.assertIs(store("fetch", "a", str(self.target)), True)
        self.assertEqual(self.target.read_bytes(), content)
        self.assertEqual(self.proxy.requests[1][2]["range"], f"bytes={MIB}-")
        self.proxy.faults = [Fault("cut", "GET", after=MIB), Fault("hold", "GET")]
        store.send("fetch", "a", str(self.target))
        wait_until(lambda: self.proxy.count() == 4, "the second request")
        self.put("data/a", other)
        self.proxy.go.set()
        self.assertIs(store.answer(), True)
        self.assertEqual(self.target.read_bytes(), other)

    def test_errors_say_what_the_server_said_and_what_to_do(self):
        self.put("data/a", b"x")
        store = self.s3()
        self.assertEqual(store.error("read", "nothing"),
                         f"cannot read {self.url('nothing')}: the server answered HTTP status 404, NoSuchKey: "
                         f"The specified key does not "
                         "exist (attempt 1 of 3). Check the name: keys differ in every character, and in case.")
        self.assertIn("HTTP status 404, NoSuchKey", store.error("fetch", "nothing", str(self.target)))
        self.assert_nothing_left()
        other = self.store("s3://nosuchbucket/data", None, self.env)
        self.assertEqual(other.error("read", "a"),
                         "cannot read s3://nosuchbucket/data/a: the server answered HTTP status 404, "
                         "NoSuchBucket: The specified bucket "
                         f"does not exist (attempt 1 of 3). Check the bucket's name and AWS_ENDPOINT_URL_S3 ({self.proxy.url}).")
        self.assertIn("NoSuchBucket", other.error("list", ""))
        self.assertIn("NoSuchBucket", other.error("put", "a", "00"))
        wrong = self.s3(AWS_SECRET_ACCESS_KEY="wrong")
        self.assertEqual(wrong.error("read", "a"),
                         f"cannot read {self.url('a')}: the server answered HTTP status 403, SignatureDoesNotMatch: The request "
                         "signature we calculated does not match the signature you provided (attempt 1 of 3). Check the key, the "
                         "secret and the token from AWS_ACCESS_KEY_ID.")
        unsigned = self.s3(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
        self.assertEqual(unsigned.error("read", "a"),
                         f"cannot read {self.url('a')}: the server answered HTTP status 403, AccessDenied: "
                         f"Access Denied (attempt 1 of 3). "
                         "The request was not signed, because no credentials were found. Set AWS_ACCESS_KEY_ID and "
                         "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile in ~/.aws/credentials.")
        self.assertIn("HTTP status 403 (attempt 1 of 3). The request was not signed", unsigned.error("find", "a"))
        self.proxy.faults = [Fault("status", code=403, body=error_body("RequestTimeTooSkewed", "The difference is too large."))]
        self.assertIn("RequestTimeTooSkewed: The difference is too large (attempt 1 of 3). Set this machine's clock",
                      store.error("read", "a"))
        self.assertEqual(store.error("read", ""),
                         f'the key "" does not name an object below {self.url()}. A key is the name that '
                         f'follows this URL, such as '
                         '"train/00001.mds".')

    def test_a_public_bucket_needs_no_credentials(self):
        self.client.put_object(Bucket=self.bucket, Key="data/a", Body=b"x", ACL="public-read")
        self.proxy.signed = False
        self.assertEqual(self.s3(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)("read", "a"), "78")
        self.assertNotIn("Authorization", self.proxy.requests[0][2])

    def test_credentials_of_files_and_profiles(self):
        self.put("data/a", b"x")
        folder = self.folder / ".aws"
        folder.mkdir()
        self.proxy.secrets = {"KEYONE": ("secret/1+=", None), "KEYTWO": ("secret2", "token2")}
        (folder / "credentials").write_text("# mine\n[default]\naws_access_key_id = KEYONE\naws_secret_access_key=secret/1+=\n\n"
                                            "[other]\naws_access_key_id=KEYTWO\naws_secret_access_key=secret2\n"
                                            "aws_session_token=token2\n")
        (folder / "config").write_text(f"[default]\nregion=eu-west-1\n[profile other]\nregion = eu-north-1\ns3 =\n    x = 1\n"
                                       f"endpoint_url = {self.proxy.url}\n")
        none = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
        self.assertEqual(self.s3(**none)("read", "a"), "78")
        self.assertIn("KEYONE/", self.proxy.requests[-1][2]["Authorization"])
        self.assertIn("/eu-west-1/s3/", self.proxy.requests[-1][2]["Authorization"])
        self.assertEqual(self.s3(**none, AWS_PROFILE="other", AWS_ENDPOINT_URL_S3=None)("read", "a"), "78")
        self.assertIn("/eu-north-1/s3/", self.proxy.requests[-1][2]["Authorization"])
        self.assertEqual(self.s3(**none, AWS_PROFILE="othre").opened["error"],
                         f"AWS_PROFILE=othre: there is no such profile in {folder}/credentials or {folder}/config. Did you mean "
                         '"other"? Known: default, other.')
        shutil.move(folder / "credentials", self.folder / "elsewhere")
        self.assertEqual(self.s3(**none, AWS_SHARED_CREDENTIALS_FILE=str(self.folder / "elsewhere"))("read", "a"), "78")
        self.assertEqual(self.s3(AWS_SECRET_ACCESS_KEY=None).error("read", "a"),
                         "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not. Set both, or neither.")

    def test_renewed_credentials_are_read_again(self):
        self.put("data/a", b"x")
        credentials = self.folder / "credentials"
        text = "[default]\naws_access_key_id={}\naws_secret_access_key=secret\naws_session_token={}\n"
        credentials.write_text(text.format("KEYONE", "first"))
        self.proxy.secrets = {"KEYONE": ("secret", "first")}
        store = self.s3(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_SHARED_CREDENTIALS_FILE=str(credentials))
        self.assertEqual(store("read", "a"), "78")
        self.proxy.secrets = {"KEYONE": ("secret", "expired"), "KEYTWO": ("secret", "second")}
        self.assertIn(f"ExpiredToken: The provided token has expired (attempt 1 of 3). The credentials from profile default of "
                      f"{credentials} have expired: renew them.", store.error("read", "a"))
        credentials.write_text(text.format("KEYTWO", "second"))
        self.assertEqual(store("read", "a"), "78")
        self.assertIs(store("fetch", "a", str(self.target)), True)

    def test_credentials_of_a_container(self):
        self.put("data/a", b"x")
        self.proxy.secrets = {"ROLEKEY": ("rolesecret", "roletoken")}
        files = self.folder / "role"
        files.mkdir()
        (files / "credentials").write_text(json.dumps({"AccessKeyId": "ROLEKEY", "SecretAccessKey": "rolesecret",
                                                       "Token": "roletoken"}))
        server = FolderServer(files)
        self.addCleanup(server.stop)
        (self.folder / "token").write_text("bearer\n")
        none = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None,
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self.folder / "token")}
        store = self.s3(**none, AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url + "/credentials")
        self.assertEqual(store("read", "a"), "78")
        self.assertEqual(server.requests[0][2]["Authorization"], "bearer")
        store = self.s3(**none, AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url + "/nothing")
        self.assertEqual(store.error("read", "a"),
                         f"cannot get credentials from {server.url}/nothing: the server answered HTTP status "
                         f"404 (attempt 1 of 3). Check "
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI, or set AWS_ACCESS_KEY_ID.")

    def test_the_region_that_a_server_names_is_used_from_then_on(self):
        self.put("data/a", b"x")
        for status, headers, body in (
                (301, [("x-amz-bucket-region", "eu-west-3")], error_body("PermanentRedirect", "Use another endpoint.")),
                (400, [], error_body("AuthorizationHeaderMalformed", "The region is wrong.", "<Region>eu-west-3</Region>"))):
            self.proxy.faults = [Fault("status", code=status, headers=headers, body=body)]
            store = self.s3()
            for _ in range(2):
                self.assertEqual(store("read", "a"), "78")
            regions = [each[2]["Authorization"].split("/")[2] for each in self.proxy.requests]
            self.assertEqual(regions, ["us-east-1", "eu-west-3", "eu-west-3"])
            self.proxy.clear()

    def test_settings_that_cannot_be_used_are_named(self):
        self.assertEqual(self.s3(AWS_ENDPOINT_URL_S3="localhost:9000").opened["error"],
                         'AWS_ENDPOINT_URL_S3: "localhost:9000" is not a server\'s URL. Set it to one without '
                         'user and password, such as '
                         "http://127.0.0.1:9000.")
        self.assertNotIn("secret", self.s3(AWS_ENDPOINT_URL_S3="http://me:secret@localhost:9000").opened["error"])
        self.assertEqual(self.store("s3://", None, self.env).opened["error"],
                         '"s3://" does not name a bucket. Write s3://bucket/prefix.')
        error = self.store("s3://key:secret@bucket/x", None, self.env).opened["error"]
        self.assertEqual(error, "an s3:// URL has a bucket and a prefix alone, such as s3://bucket/prefix. Credentials belong in "
                         "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a server in AWS_ENDPOINT_URL_S3.")

    def test_amazon_itself_is_addressed_by_bucket_and_region(self):
        # No server of Amazon's is reached: the proxy of the environment refuses, and the name is in its request.
        self.proxy.signed = False
        store = self.s3("", AWS_ENDPOINT_URL_S3=None, AWS_REGION="eu-west-1", https_proxy=self.proxy.url)
        error = store.error("read", "a")
        self.assertIn(f"cannot read s3://{self.bucket}/a: the connection failed", error)
        self.assertIn("Check the network and AWS_REGION (eu-west-1), or name a different server in AWS_ENDPOINT_URL_S3.", error)

    def test_latency_is_paid_once_for_each_object(self):
        keys = [f"{i:03}" for i in range(40)]
        for key in keys:
            self.put("data/" + key, b"x" * 1000)
        self.proxy.latency = 0.05
        store = self.s3()
        answer = store("read_all", keys, 8)
        self.assertEqual(answer["results"], [1000] * 40)
        self.assertLessEqual(len(self.proxy.connections()), 8)
        self.assertLess(answer["seconds"], 40 * 0.05)  # eight at once


if __name__ == "__main__":
    problem = object_servers.missing()
    if problem:
        print(f"SKIPPED: {problem}")
        sys.exit(77)
    unittest.main(verbosity=2)
