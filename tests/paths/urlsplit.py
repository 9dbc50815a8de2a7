# Python: plain http, with a path that is read by urlsplit and decoded afterwards.
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


def handler(found):
    if found == "/login":
        return "login"
    if re.fullmatch(r"/users/[^/]+", found):
        return "user"
    if re.fullmatch(r"/api/.+", found):
        return "api"
    return "none"


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one segment: the second would wait for an acknowledgement.
    wbufsize = -1

    def parse_request(self):
        # http.server merges the slashes that a path begins with.
        target = self.raw_requestline.split(b" ")[1].decode("latin-1")
        is_parsed = super().parse_request()
        self.path = target
        return is_parsed

    def do_GET(self):
        try:
            body = handler(unquote(urlsplit(self.path).path))
        except ValueError:
            body = "none"
        self.send_response(404 if body == "none" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Server).serve_forever()
