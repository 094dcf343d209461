//! Which of the source's topics are mirrored, and why another is not.

use std::fmt;
use std::sync::Arc;

use regex::Regex;

use crate::catalog::is_legal_name;

/// Which topics are wanted. Patterns match whole names; excluding wins over including. A topic that
/// is internal to Kafka (by its flag, or by a name in `__`) is wanted only where it is named.
#[derive(Clone, Debug)]
pub struct TopicFilter {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: Arc<str>,
    regex: Regex,
    /// The pattern is a name: no character in it has a meaning to regular expressions but the dot.
    named: bool,
}

/// Why a topic is not mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// Internal to Kafka and not named.
    Internal,
    /// This pattern excludes it.
    Excluded(Arc<str>),
    /// No pattern includes it.
    NotIncluded,
    /// No broker of Kafka has such a topic.
    IllegalName,
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal => f.write_str("internal to Kafka and not named in `include`"),
            Self::Excluded(pattern) => write!(f, "excluded by the pattern `{pattern}`"),
            Self::NotIncluded => f.write_str("no pattern includes it"),
            Self::IllegalName => f.write_str("its name is not one that Kafka allows"),
        }
    }
}

impl Default for TopicFilter {
    /// Every topic that is not internal.
    fn default() -> Self {
        let all = Pattern::new(".*").expect("the pattern for everything is one");
        Self { include: vec![all], exclude: Vec::new() }
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, regex::Error> {
        let regex = Regex::new(&format!("^(?:{text})$"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        Ok(Self { text: text.into(), regex, named: text.chars().all(plain) })
    }
}

impl TopicFilter {
    /// A filter of these patterns.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, regex::Error> {
        let patterns = |texts: &[S]| -> Result<Vec<Pattern>, regex::Error> {
            texts.iter().map(|text| Pattern::new(text.as_ref())).collect()
        };
        Ok(Self { include: patterns(include)?, exclude: patterns(exclude)? })
    }

    /// Whether the topic of this name is wanted, or why not.
    pub fn check(&self, topic: &str, internal: bool) -> Result<(), Exclusion> {
        let matching = |patterns: &'_ [Pattern]| {
            patterns.iter().find(|pattern| pattern.regex.is_match(topic)).cloned()
        };
        if !is_legal_name(topic) {
            return Err(Exclusion::IllegalName);
        }
        if let Some(pattern) = matching(&self.exclude) {
            return Err(Exclusion::Excluded(pattern.text));
        }
        let named = || self.include.iter().any(|pattern| pattern.named && *pattern.text == *topic);
        if (internal || topic.starts_with("__")) && !named() {
            return Err(Exclusion::Internal);
        }
        match matching(&self.include) {
            Some(_) => Ok(()),
            None => Err(Exclusion::NotIncluded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_and_excluding_wins() {
        let filter = TopicFilter::new(&["orders", "pay.*"], &["pay.*-tmp"]).unwrap();
        assert_eq!(filter.check("orders", false), Ok(()));
        assert_eq!(filter.check("orders-2", false), Err(Exclusion::NotIncluded));
        assert_eq!(filter.check("payments", false), Ok(()));
        assert_eq!(
            filter.check("payments-tmp", false),
            Err(Exclusion::Excluded("pay.*-tmp".into()))
        );
    }

    #[test]
    fn internal_topics_are_wanted_only_where_they_are_named() {
        let all = TopicFilter::default();
        assert_eq!(all.check("__consumer_offsets", true), Err(Exclusion::Internal));
        assert_eq!(all.check("__strange", false), Err(Exclusion::Internal));
        assert_eq!(all.check("flagged", true), Err(Exclusion::Internal));
        let named = TopicFilter::new(&["__strange", ".*"], &[]).unwrap();
        assert_eq!(named.check("__strange", false), Ok(()));
        assert_eq!(named.check("__other", false), Err(Exclusion::Internal));
    }

    #[test]
    fn an_alternative_does_not_escape_the_anchors() {
        let filter = TopicFilter::new(&["a|b"], &[]).unwrap();
        assert_eq!(filter.check("ab", false), Err(Exclusion::NotIncluded));
        assert_eq!(filter.check("b", false), Ok(()));
    }

    /// Such a name would be a path of its own choice, or a line of its own in a checkpoint file.
    #[test]
    fn names_that_kafka_does_not_allow_are_left_out() {
        let all = TopicFilter::default();
        for name in ["", "..", "/etc/x", "../x", "a b", "a\nb", &"x".repeat(250)] {
            assert_eq!(all.check(name, false), Err(Exclusion::IllegalName), "{name:?}");
        }
        assert_eq!(all.check(&"x".repeat(249), false), Ok(()));
    }
}
