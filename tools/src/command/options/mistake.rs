//! What is wrong with what the operator said: where, what, and what is allowed.

use std::fmt;

/// One mistake, as a sentence that begins with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `--listen "x"`, or `farspan.toml:3: node.listen = "x"`.
    pub place: String,
    /// What is wrong and what is allowed.
    pub wrong: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.wrong)
    }
}

/// All mistakes that were found; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    pub(super) fn one(place: impl Into<String>, wrong: impl Into<String>) -> Self {
        Self(vec![Mistake { place: place.into(), wrong: wrong.into() }])
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, mistake) in self.0.iter().enumerate() {
            let end = if place == 0 { "" } else { "\n" };
            write!(f, "{end}{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
