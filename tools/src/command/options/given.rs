//! One text that the operator gave, and where.

use std::convert::Infallible;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// Where something was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the command line.
    Flag,
    /// In the configuration file, at this byte of it.
    File { position: usize },
}

/// A value as it was given, not looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub text: String,
    pub place: Place,
}

impl FromStr for Given {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self { text: text.into(), place: Place::Flag })
    }
}

/// What stands for a text in the file. Numbers and switches need no quotes.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, a number, true or false must stand here")]
enum Scalar {
    Text(String),
    Number(i64),
    Switch(bool),
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
            Self::Switch(switch) => switch.to_string(),
        }
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = toml::Spanned::<Scalar>::deserialize(deserializer)?;
        let place = Place::File { position: scalar.span().start };
        Ok(Self { text: scalar.into_inner().into_text(), place })
    }
}

/// Reads a list, or one value that stands for a list of one.
pub(super) fn one_or_many<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Given>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a list of texts must stand here")]
    enum OneOrMany {
        One(Scalar),
        Many(Vec<Scalar>),
    }
    let values = toml::Spanned::<OneOrMany>::deserialize(deserializer)?;
    let place = Place::File { position: values.span().start };
    let texts = match values.into_inner() {
        OneOrMany::One(scalar) => vec![scalar],
        OneOrMany::Many(scalars) => scalars,
    };
    Ok(texts.into_iter().map(|scalar| Given { text: scalar.into_text(), place }).collect())
}
