#!/usr/bin/env bash
# Sends 10,000 spellings of limited paths to real servers: nginx, Tomcat 10.1, Python, Node with
# express, and Go. Fails if one reaches a handler and escapes its policy.
#
# Needs nginx, a JDK with Maven, python3, Node with npm, and Go; fetches express and Tomcat. All
# servers listen on 127.0.0.1 from port 18200 on, or from PATHS_PORT, and end with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in nginx javac mvn python3 node npm go; do
  command -v "$tool" >/dev/null || { echo "tests/paths.sh: $tool is needed" >&2; exit 1; }
done

folder=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
port=${PATHS_PORT:-18200}
python=$port nginx=$((port + 10)) tomcat=$((port + 20)) node=$((port + 30)) go=$((port + 40))

mkdir -p "$folder/files/users" "$folder/files/api"
printf login >"$folder/files/login"
printf user >"$folder/files/users/7"
printf api >"$folder/files/api/x"
python3 -m http.server -b 127.0.0.1 -d "$folder/files" "$python" >"$folder/python.log" 2>&1 &
pids+=($!)
python3 tests/paths/urlsplit.py "$((python + 1))" &
pids+=($!)

sed -e "s|FOLDER|$folder|; s/PYTHON/$python/; s/TOMCAT/$tomcat/" \
  -e "s/PORT0/$nginx/; s/PORT1/$((nginx + 1))/; s/PORT2/$((nginx + 2))/; s/PORT3/$((nginx + 3))/" \
  -e "s|FOLDER|$folder|g" tests/paths/nginx.conf >"$folder/nginx.conf"
nginx -c "$folder/nginx.conf" &
pids+=($!)

cp tests/paths/tomcat/pom.xml "$folder/pom.xml"
mvn -q -B -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath \
  "-Dmdep.outputFile=$folder/classpath"
javac -d "$folder/classes" -cp "$(cat "$folder/classpath")" tests/paths/tomcat/Servers.java
java -cp "$folder/classes:$(cat "$folder/classpath")" Servers "$tomcat" 2>"$folder/tomcat.log" &
pids+=($!)

npm install --silent --no-fund --no-audit --prefix "$folder" express@5
NODE_PATH="$folder/node_modules" node --no-deprecation tests/paths/node.js "$node" &
pids+=($!)

go build -o "$folder/go-server" tests/paths/server.go
"$folder/go-server" "$go" &
pids+=($!)

servers="python=127.0.0.1:$python python-urlsplit=127.0.0.1:$((python + 1))"
servers+=" nginx=127.0.0.1:$nginx nginx-unmerged=127.0.0.1:$((nginx + 1))"
servers+=" nginx-before-python=127.0.0.1:$((nginx + 2)) nginx-before-tomcat=127.0.0.1:$((nginx + 3))"
servers+=" tomcat=127.0.0.1:$tomcat tomcat-decode=127.0.0.1:$((tomcat + 1))"
servers+=" tomcat-passthrough=127.0.0.1:$((tomcat + 2)) express:i=127.0.0.1:$node"
servers+=" node-URL=127.0.0.1:$((node + 1)) node-url.parse=127.0.0.1:$((node + 2))"
servers+=" node-normalize=127.0.0.1:$((node + 3)) node-decode-parse=127.0.0.1:$((node + 4))"
servers+=" node-backslashes=127.0.0.1:$((node + 5))"
servers+=" go-mux=127.0.0.1:$go go-clean=127.0.0.1:$((go + 1))"
for server in $servers; do
  address=${server#*=}
  for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null && break
    sleep 0.2
  done
done

PATH_SERVERS=$servers cargo test -p tower-sluice-policies --quiet --all-features --test policies \
  handlers:: -- --nocapture
