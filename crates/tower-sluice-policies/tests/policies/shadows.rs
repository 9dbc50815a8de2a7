//! Policies in a shadow delay nobody: they are asked at once.

use tower_sluice::Pool;

use super::*;

use support::Server;
use support::faults::in_time;
use support::proxy::{Fault, Proxy};
use support::stats::script_calls;

#[tokio::test]
async fn policies_in_a_shadow_are_asked_at_once() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let row = |name: &str| {
        format!("[[policy]]\nname = '{name}'\nlimit = 9\nperiod = '1h'\nshadow = true\n")
    };
    let table = rows(&["a", "b", "c", "d"].map(row).concat());
    let pool = Pool::connect(&proxy.url()).unwrap();
    let hour = Duration::from_secs(3_600);
    let policies = Policies::builder().redis(pool).decision_timeout(hour).build(&table).unwrap();
    let call = request("GET", "/", &[]);
    // The script travels with the first.
    let _ = decide(&policies, &call).await;
    let mut connection = server.connection().await;
    let before = script_calls(&mut connection).await;
    proxy.set(Fault::Hold);
    let decision = tokio::spawn(async move { decide(&policies, &call).await });
    in_time(Duration::from_secs(20), async {
        while script_calls(&mut connection).await < before + 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    proxy.set(Fault::None);
    assert!(decision.await.unwrap().is_admitted());
}
