//! A real proxy as a process, with the settings that the guide advises.

use std::process::Command;

use support::files::Files;
use support::process::Process;
use support::{Server, eventually, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Twemproxy,
    Envoy,
    Haproxy,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Twemproxy, Self::Envoy, Self::Haproxy];
}

pub struct RealProxy {
    port: u16,
    _process: Process,
    _files: Files,
}

impl RealProxy {
    /// Starts a proxy, and waits until it answers a PING.
    pub async fn before(kind: Kind, servers: &[Server]) -> Self {
        let (files, port) = (Files::new(), free_port());
        let (variable, text) = match kind {
            Kind::Twemproxy => ("TWEMPROXY", twemproxy(port, servers)),
            Kind::Envoy => ("ENVOY", envoy(port, servers)),
            Kind::Haproxy => ("HAPROXY", haproxy(port, servers)),
        };
        let program = std::env::var_os(variable).expect("tests/field.sh finds the programs");
        let mut command = Command::new(program);
        match kind {
            Kind::Twemproxy => {
                let stats = free_port().to_string();
                let log = files.write("log", "");
                command.args(["-c", &files.write("conf.yml", &text), "-s", &stats, "-o", &log]);
            }
            Kind::Envoy => {
                let file = files.write("envoy.yaml", &text);
                command.args(["-c", &file, "--use-dynamic-base-id", "--concurrency", "1"]);
            }
            Kind::Haproxy => {
                command.args(["-db", "-f", &files.write("haproxy.cfg", &text)]);
            }
        }
        let process = Process::start(&mut command).expect("a process");
        eventually("the proxy answers", async || pings(port).await.is_some()).await;
        Self { port, _process: process, _files: files }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

async fn pings(port: u16) -> Option<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").await.ok()?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).await.ok()?;
    (&answer == b"+PONG\r\n").then_some(())
}

fn twemproxy(port: u16, servers: &[Server]) -> String {
    let each = servers.iter().map(|server| format!("    - 127.0.0.1:{}:1\n", server.port()));
    format!(
        "pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  \
         distribution: ketama\n  auto_eject_hosts: false\n  timeout: 1000\n  \
         server_connections: 1\n  servers:\n{}",
        each.collect::<String>()
    )
}

fn envoy(port: u16, servers: &[Server]) -> String {
    let each = servers.iter().map(|server| {
        format!(
            "        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, \
             port_value: {}}}}}}}\n",
            server.port()
        )
    });
    format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: redis
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: {{op_timeout: 1s}}
          prefix_routes: {{catch_all_route: {{cluster: redis}}}}
  clusters:
  - name: redis
    type: STATIC
    lb_policy: MAGLEV
    connect_timeout: 1s
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
{}",
        each.collect::<String>()
    )
}

/// The settings of the guide, for the servers of a test.
fn haproxy(port: u16, servers: &[Server]) -> String {
    let page = include_str!("../../../docs/guide/clusters-and-proxies.md");
    let (_, text) = page.split_once("```text\n").expect("the settings");
    let (text, _) = text.split_once("    server one").expect("its servers");
    let each = servers.iter().enumerate().map(|(number, server)| {
        format!("    server s{number} 127.0.0.1:{} check\n", server.port())
    });
    format!(
        "{text}{}\nfrontend redis-in\n    bind 127.0.0.1:{port}\n    default_backend redis\n",
        each.collect::<String>()
    )
}
