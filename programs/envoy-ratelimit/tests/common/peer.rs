//! envoyproxy/ratelimit, which `peer.sh` builds.

use std::net::SocketAddr;
use std::process::Command;

use support::files::Files;
use support::process::Process;
use support::{free_port, until};

/// The peer as a process, ended when it is dropped.
pub struct Peer {
    pub process: Process,
    pub grpc: SocketAddr,
    _folder: Files,
}

impl Peer {
    pub fn start(rules: &str, redis: &str) -> Self {
        let folder = Files::new();
        let config = folder.join("ratelimit/config");
        std::fs::create_dir_all(&config).expect("a folder");
        std::fs::write(config.join("rules.yaml"), rules).expect("written");
        let [grpc, http, debug] = [free_port(), free_port(), free_port()];
        let mut peer =
            Command::new(std::env::var_os("PEER").expect("run peer.sh, which builds it"));
        peer.env_clear()
            // Its logging sink would write a line for each request.
            .envs([("DISABLE_STATS", "true"), ("LOG_LEVEL", "error"), ("REDIS_SOCKET_TYPE", "tcp")])
            .envs([("RUNTIME_SUBDIRECTORY", "ratelimit"), ("RUNTIME_WATCH_ROOT", "false")])
            .envs([("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1"), ("DEBUG_HOST", "127.0.0.1")])
            .env("REDIS_URL", redis.trim_start_matches("redis://"))
            .env("RUNTIME_ROOT", &*folder)
            .env("GRPC_PORT", grpc.to_string())
            .env("PORT", http.to_string())
            .env("DEBUG_PORT", debug.to_string());
        let process = Process::start(&mut peer).expect("a process");
        let grpc = SocketAddr::from(([127, 0, 0, 1], grpc));
        until("the peer listens", || std::net::TcpStream::connect(grpc).is_ok());
        Self { process, grpc, _folder: folder }
    }
}
