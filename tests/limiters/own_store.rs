//! A store that somebody else writes: a limiter outside the crate whose reservations are its own.
//!
//! It counts in rows, as a table of DynamoDB would: each admission writes a row, and a
//! settlement changes it.

use std::collections::HashMap;

use super::*;

const LIMIT: u64 = 10;

/// The rows of a table, by key and number.
type Rows = HashMap<(String, usize), u64>;

/// The payload by which a reservation finds its row.
struct Row {
    key: String,
    number: usize,
}

#[derive(Clone)]
struct Table {
    owner: Owner,
    rows: Arc<Mutex<Rows>>,
}

impl Table {
    fn new() -> Self {
        Self { owner: Owner::new(), rows: Arc::default() }
    }

    fn used(&self, key: &str) -> u64 {
        let rows = self.rows.lock().unwrap();
        rows.iter().filter(|((of, _), _)| of == key).map(|(_, units)| units).sum()
    }
}

impl Limiter for Table {
    type Future = Ready<Result<Decision, Error>>;

    fn check(&self, charge: &Charge) -> Self::Future {
        let (key, cost) = (charge.key().to_owned(), charge.units());
        if self.used(&key) + cost > LIMIT {
            return ready(Ok(Decision::denied(None)));
        }
        let decision = Decision::admitted().with_remaining(LIMIT - self.used(&key) - cost);
        if cost == 0 {
            return ready(Ok(decision));
        }
        let mut rows = self.rows.lock().unwrap();
        let number = rows.len();
        rows.insert((key.clone(), number), cost);
        let row = Row { key, number };
        ready(Ok(decision.with_reservation(Reservation::new(self.owner, cost, row))))
    }

    fn settle(&self, reservation: Reservation, actual: u64) -> Result<Settlement, Reservation> {
        if reservation.owner() != self.owner {
            return Err(reservation);
        }
        let cost = reservation.cost();
        let Row { key, number } = reservation.into_payload()?;
        self.rows.lock().unwrap().insert((key, number), actual);
        Ok(Settlement::gave_back(cost.saturating_sub(actual)))
    }
}

#[tokio::test]
async fn a_store_of_ones_own_refunds_takes_more_and_hands_back_what_is_not_its_own() {
    let (table, other) = (Table::new(), Table::new());
    let reserve = async || {
        let mut decision = table.check(&Charge::new("alice").cost(4)).await.unwrap();
        decision.take_reservation().expect("it was admitted")
    };
    let (first, second) = (reserve().await, reserve().await);
    assert!(table.peek("alice").await.unwrap().take_reservation().is_none());
    assert!(!table.check(&Charge::new("alice").cost(4)).await.unwrap().is_admitted());

    let first = other.settle(first, 0).expect_err("another store's reservation comes back");
    assert!(table.settle(first, 1).is_ok());
    assert_eq!(table.used("alice"), 1 + 4);
    assert!(table.refund(second).is_ok());
    assert_eq!(table.used("alice"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_layer_and_every_wrapper_settle_with_a_store_of_ones_own() {
    let table = Table::new();
    let share = Memory::new("share", TokenBucket::new(Quota::per_hour(10)));
    let limiter = table.clone().timeout(Duration::from_millis(20)).or_else(share).or_else(FailOpen);
    let sent = |answer: Answer<String, Error>| match answer.result() {
        Ok(response) => Settle::Cost(response.len() as u64),
        Err(_) => Settle::Keep,
    };
    let layer = RateLimitLayer::new(limiter.boxed(), |_: &&'static str| "alice")
        .respond(Raise)
        .settle(sent);
    let echo = service_fn(async |request: &'static str| Ok::<_, Error>(request.to_owned()));
    for request in ["", "seven b", "ten bytes!"] {
        layer.layer(echo).oneshot(request).await.unwrap();
    }
    assert_eq!(table.used("alice"), 17);
    layer.layer(echo).oneshot("one more").await.unwrap_err();
}
