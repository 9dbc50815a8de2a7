//! A gRPC server and its client, in one process that ends by itself.

use std::process::Command;

use support::example;

#[test]
fn the_grpc_example_admits_five_and_tells_the_others_when() {
    let output = Command::new(example::built("tonic")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let admitted = said.lines().filter(|line| *line == "admitted").count();
    let later =
        said.lines().filter(|line| line.starts_with("ResourceExhausted: ")).collect::<Vec<_>>();
    // All ten go out at once; on a slow machine the bucket may gain a unit meanwhile.
    assert!(admitted >= 5 && admitted + later.len() == 10, "{said}");
    assert!(later.iter().all(|line| line.contains("come back after Some(")), "{said}");
}
