//! An error of any library with all its causes. Those of the limiters print theirs as `{error:#}`.

use std::error::Error;

/// The texts of an error and of what caused it, each once.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use tower::BoxError;
    use tower_sluice::{Error as Undecided, ErrorKind};

    use super::*;

    #[test]
    fn each_cause_is_there_once() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        let error = |message: &'static str, source: BoxError| {
            Undecided::new(ErrorKind::Infrastructure, message).with_source(source)
        };
        let inner = error("the call failed: broken pipe", pipe().into());
        let outer = error("no connection", inner.into());
        assert_eq!(causes(&outer), "no connection: the call failed: broken pipe");
        assert_eq!(causes(&pipe()), "broken pipe");
    }
}
