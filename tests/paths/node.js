// Node: express, and plain http with the parsers of addresses that programs use. Ports follow the
// first.
const http = require("http");
const path = require("path");
const url = require("url");
const express = require("express");

const first = Number(process.argv[2]);
const handler = (found) => {
  if (found === "/login") return "login";
  if (/^\/users\/[^/]+$/.test(found)) return "user";
  if (/^\/api\/.+$/.test(found)) return "api";
  return null;
};
const answer = (response, found) => {
  const body = handler(found) || "none";
  response.writeHead(body === "none" ? 404 : 200, { "content-length": body.length });
  response.end(body);
};
const plain = (read) =>
  http.createServer((request, response) => {
    let found;
    try {
      found = read(request.url);
    } catch {
      found = "";
    }
    answer(response, found);
  });

const app = express();
app.get("/login", (_, response) => response.send("login"));
app.get("/users/:id", (_, response) => response.send("user"));
app.get("/api/*rest", (_, response) => response.send("api"));

const servers = [
  http.createServer(app),
  plain((target) => new URL(target, "http://localhost").pathname),
  plain((target) => url.parse(target).pathname),
  plain((target) => path.posix.normalize(decodeURIComponent(target.split("?")[0]))),
  plain((target) => url.parse(decodeURIComponent(target)).pathname),
  plain((target) => path.win32.normalize(decodeURI(target.split("?")[0])).replaceAll("\\", "/")),
];
servers.forEach((server, place) => server.listen(first + place, "127.0.0.1"));
