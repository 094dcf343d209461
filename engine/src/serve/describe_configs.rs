//! DescribeConfigs: the configs of topics as the source has them, and a few of this node.

use std::collections::BTreeSet;

use wire::api::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym, RESOURCE_BROKER,
    RESOURCE_TOPIC,
};
use wire::api::{ErrorCode, Versions};

use super::ServeOptions;
use super::config_table::{
    self as table, DEFAULT, Kind, TOPIC, TOPIC_CONFIGS, TopicConfig, broker_configs,
};
use super::route::{Handled, Refusal, Request, check_entries};
use crate::catalog::{Catalog, Topic};

pub(super) const SERVED: Versions = Versions { least: 1, most: 4 };

pub(super) fn handle(mut request: Request<'_>) -> Result<Handled, Refusal> {
    let version = request.version();
    let asked = DescribeConfigsRequest::read(&mut request.body, version)?;
    let keys = |resource: &DescribeConfigsResource| {
        resource.configuration_keys.as_ref().map_or(0, Vec::len)
    };
    check_entries(asked.resources.iter().map(|resource| 1 + keys(resource)).sum())?;
    // A resource costs its asker ten bytes and us kilobytes: each is described once.
    let mut described = BTreeSet::new();
    let results = asked
        .resources
        .iter()
        .filter(|resource| described.insert((resource.resource_type, &resource.resource_name)))
        .map(|resource| describe(resource, &asked, request.catalog, request.options))
        .collect();
    let response = DescribeConfigsResponse { results, ..DescribeConfigsResponse::default() };
    request.reply(|writer| response.write(writer, version))
}

fn describe(
    resource: &DescribeConfigsResource,
    asked: &DescribeConfigsRequest,
    catalog: &Catalog,
    options: &ServeOptions,
) -> DescribeConfigsResult {
    let name = resource.resource_name.as_str();
    let wanted = |config: &str| match resource.configuration_keys.as_deref() {
        None | Some([]) => true,
        Some(keys) => keys.iter().any(|key| key == config),
    };
    let configs = match resource.resource_type {
        RESOURCE_TOPIC => match catalog.topic(name) {
            Some(topic) => Ok(topic_configs(topic, wanted)),
            None if crate::catalog::is_legal_name(name) => {
                Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None))
            }
            None => Err((ErrorCode::INVALID_TOPIC_EXCEPTION, Some("no legal name".to_owned()))),
        },
        // What brokers were told to share: nothing.
        RESOURCE_BROKER if name.is_empty() => Ok(Vec::new()),
        RESOURCE_BROKER if name == catalog.node_id.to_string() => {
            Ok(broker_configs(catalog, options)
                .into_iter()
                .filter(|config| wanted(config.name))
                .map(broker_config)
                .collect())
        }
        RESOURCE_BROKER => Err((
            ErrorCode::INVALID_REQUEST,
            Some(format!(
                "unexpected broker id, expected {} or empty string, but received {name}",
                catalog.node_id
            )),
        )),
        other => {
            Err((ErrorCode::INVALID_REQUEST, Some(format!("unsupported resource type {other}"))))
        }
    };
    let mut result = DescribeConfigsResult {
        resource_type: resource.resource_type,
        resource_name: name.to_owned(),
        ..DescribeConfigsResult::default()
    };
    match configs {
        Ok(configs) => result.configs = configs,
        Err((error_code, error_message)) => {
            result.error_code = error_code;
            result.error_message = error_message;
        }
    }
    if !asked.include_synonyms {
        for config in &mut result.configs {
            config.synonyms = Vec::new();
        }
    }
    result
}

/// All that Kafka shows, and what the source set besides. Nothing is marked read-only, although it
/// is: tools that copy configs from one cluster to another leave out what is.
fn topic_configs(
    topic: &Topic,
    wanted: impl Fn(&str) -> bool,
) -> Vec<DescribeConfigsResourceResult> {
    let known = TOPIC_CONFIGS
        .iter()
        .filter(|config| wanted(config.name))
        .map(|config| known_config(config, topic.configs.get(config.name)));
    let is_known =
        |name: &str| TOPIC_CONFIGS.binary_search_by(|known| known.name.cmp(name)).is_ok();
    let others = topic
        .configs
        .iter()
        .filter(|(name, _)| !is_known(name) && wanted(name))
        .map(|(name, value)| config(name, value, TOPIC, Kind::Unknown));
    known.chain(others).collect()
}

fn known_config(known: &TopicConfig, set: Option<&String>) -> DescribeConfigsResourceResult {
    let by_default = (!known.broker_name.is_empty())
        .then(|| synonym(known.broker_name, known.default, table::DEFAULT));
    let mut described = match set {
        Some(value) => config(known.name, value, TOPIC, known.kind),
        None => DescribeConfigsResourceResult {
            synonyms: Vec::new(),
            ..config(known.name, known.default, DEFAULT, known.kind)
        },
    };
    described.synonyms.extend(by_default);
    described
}

fn broker_config(known: table::BrokerConfig) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        read_only: true,
        ..config(known.name, &known.value, known.source, known.kind)
    }
}

fn config(name: &str, value: &str, source: i8, kind: Kind) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        config_source: source,
        config_type: kind as i8,
        synonyms: vec![synonym(name, value, source)],
        ..DescribeConfigsResourceResult::default()
    }
}

fn synonym(name: &str, value: &str, source: i8) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym { name: name.to_owned(), value: Some(value.to_owned()), source }
}
