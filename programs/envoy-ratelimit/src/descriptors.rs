//! The files of Envoy's protocol, for reflection and for its JSON.
//!
//! `rls.binpb` has `envoy/service/ratelimit/v3/rls.proto` and what it imports, without comments.
//! It is a part of the crate `envoy-types`; a test compares it, and writes it anew with `UPDATE=1`.

use std::sync::OnceLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

/// A `google.protobuf.FileDescriptorSet`.
pub(crate) const ENCODED: &[u8] = include_bytes!("rls.binpb");

pub(crate) const REQUEST: &str = "envoy.service.ratelimit.v3.RateLimitRequest";
pub(crate) const RESPONSE: &str = "envoy.service.ratelimit.v3.RateLimitResponse";

/// The descriptor of a message by its name.
pub(crate) fn message(name: &str) -> MessageDescriptor {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| DescriptorPool::decode(ENCODED).expect("a set of files"));
    pool.get_message_by_name(name).expect("a message of these files")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use prost::Message;
    use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};

    use super::*;

    const ROOT: &str = "envoy/service/ratelimit/v3/rls.proto";

    /// The file and what it imports, each after its imports.
    fn closure(all: &FileDescriptorSet, name: &str, found: &mut Vec<FileDescriptorProto>) {
        let is_it = |file: &&FileDescriptorProto| file.name() == name;
        if found.iter().any(|file| file.name() == name) {
            return;
        }
        let file = all.file.iter().find(is_it).expect(name).clone();
        for import in &file.dependency {
            closure(all, import, found);
        }
        found.push(FileDescriptorProto { source_code_info: None, ..file });
    }

    #[test]
    fn they_are_those_of_envoy_types() {
        // Of other platforms, cargo may have packages that nobody has downloaded.
        let host = Command::new("rustc").args(["--print", "host-tuple"]).output().unwrap();
        let host = String::from_utf8(host.stdout).unwrap();
        let metadata = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--offline", "--locked"])
            .args(["--filter-platform", host.trim()])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages.iter().find(|one| one["name"] == "envoy-types").unwrap();
        let manifest = std::path::Path::new(package["manifest_path"].as_str().unwrap());
        let types = std::fs::read(manifest.with_file_name("src/generated/types.bin")).unwrap();
        let all = FileDescriptorSet::decode(&*types).unwrap();
        let mut file = Vec::new();
        closure(&all, ROOT, &mut file);
        let encoded = FileDescriptorSet { file }.encode_to_vec();
        if std::env::var_os("UPDATE").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rls.binpb");
            std::fs::write(path, &encoded).unwrap();
        }
        assert!(encoded == ENCODED, "run the test with UPDATE=1");
    }

    #[test]
    fn the_messages_are_there() {
        assert!(message(REQUEST).get_field_by_json_name("hitsAddend").is_some());
        assert!(message(RESPONSE).get_field_by_name("overall_code").is_some());
    }
}
