//! Following the source's metadata: all of it from time to time, single topics when they are missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use wire::api::ApiKey;
use wire::api::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
};
use wire::batch::crc32c;
use wire::codec::Reader;
use wire::ids::{BrokerId, TopicId};

use super::Effect;
use super::conn::{About, Refusal};
use super::image::{Atlas, SourceImage};
use super::line::{Address, LineKey, broker_name};
use super::link::{Link, Timer};
use super::options::LinkOptions;
use crate::ids::Now;

/// Topics that are asked for by name in one request.
const TOPICS_IN_REQUEST_MAX: usize = 500;

/// Topics that may wait to be asked for by name; more than these are asked for as all.
const TOPICS_WANTED_MAX: usize = 2_000;

/// Answers in a row that were asked for because something was missing and brought nothing, after
/// which another broker is asked: this one may have lost touch with its cluster.
const FRUITLESS_MAX: u32 = 5;

/// What is known of the source and what is to be asked.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) image: Arc<SourceImage>,
    atlas: Atlas,
    wanted: BTreeSet<Arc<str>>,
    all_wanted: bool,
    /// No request before this moment.
    not_before: Now,
    /// No listing of all topics before this moment.
    all_not_before: Now,
    /// All topics are listed again at this moment.
    all_at: Now,
    /// Checksum and length of the last full listing.
    last_all: Option<(u32, usize)>,
    fruitless: u32,
    candidate: usize,
}

impl Survey {
    pub(super) fn new(image: SourceImage, follows: bool, seed: u64) -> Self {
        Self {
            image: Arc::new(image),
            atlas: Atlas::default(),
            wanted: BTreeSet::new(),
            all_wanted: follows,
            not_before: Now(0),
            all_not_before: Now(0),
            all_at: Now(0),
            last_all: None,
            fruitless: 0,
            // Shards and nodes begin with different brokers.
            candidate: (seed % 1024) as usize,
        }
    }

    /// Newer metadata is wanted of these topics; of all where none is named.
    pub(super) fn want(&mut self, topics: impl IntoIterator<Item = Arc<str>>) {
        let mut none = true;
        for topic in topics {
            none = false;
            self.wanted.insert(topic);
        }
        if none || self.wanted.len() > TOPICS_WANTED_MAX {
            self.all_wanted = true;
            self.wanted.clear();
        }
    }

    /// What was asked will not be answered.
    pub(super) fn unanswered(&mut self, full: bool) {
        // Which topics were named is not kept: those who missed them will say so again.
        self.all_wanted |= full || self.image.brokers.is_empty();
    }

    pub(super) fn next_candidate(&mut self) {
        self.candidate = self.candidate.wrapping_add(1);
    }

    /// Whom to ask: any broker that is known, or that was named to begin with.
    pub(super) fn candidate(
        &self,
        options: &LinkOptions,
        brokers: &BTreeMap<BrokerId, Address>,
    ) -> Option<(String, Address)> {
        let count = brokers.len() + options.bootstrap.len();
        let place = self.candidate.checked_rem(count)?;
        if let Some((&id, address)) = brokers.iter().nth(place) {
            return Some((broker_name(id, address), address.clone()));
        }
        let (host, port) = options.bootstrap.get(place - brokers.len())?;
        let address = Address { host: host.as_str().into(), port: *port };
        Some((format!("bootstrap server {host}:{port}"), address))
    }

    /// When something is to be asked.
    fn due(&self) -> Now {
        let all = if self.all_wanted { self.all_not_before } else { self.all_at };
        let topics = if self.wanted.is_empty() { Now(u64::MAX) } else { Now(0) };
        all.min(topics).max(self.not_before)
    }

    /// What to ask now.
    fn next_request(&mut self, now: Now) -> Option<(MetadataRequest, bool)> {
        if now < self.due() {
            return None;
        }
        let all = now >= if self.all_wanted { self.all_not_before } else { self.all_at };
        let topics = if all {
            self.all_wanted = false;
            self.wanted.clear();
            None
        } else {
            let named: Vec<Arc<str>> =
                self.wanted.iter().take(TOPICS_IN_REQUEST_MAX).cloned().collect();
            for name in &named {
                self.wanted.remove(name);
            }
            let topic = |name: Arc<str>| MetadataRequestTopic {
                topic_id: TopicId::ZERO,
                name: Some(name.to_string()),
            };
            Some(named.into_iter().map(topic).collect())
        };
        let request =
            MetadataRequest { topics, allow_auto_topic_creation: false, ..Default::default() };
        Some((request, all))
    }
}

impl Link {
    /// Asks for newer metadata of these topics, of all where none is named: no more often than the
    /// options allow.
    pub fn refresh(&mut self, topics: &[Arc<str>]) {
        self.survey.want(topics.iter().cloned());
        self.touched = true;
    }

    /// The metadata as it is known. Empty until the source has told it.
    #[must_use]
    pub const fn image_now(&self) -> &Arc<SourceImage> {
        &self.survey.image
    }

    /// Takes the metadata that another shard's link was told.
    pub fn image(&mut self, image: Arc<SourceImage>, now: Now, out: &mut Vec<Effect>) {
        if !Arc::ptr_eq(&image, &self.survey.image) {
            self.doubts.take(&image);
            self.take_image(image, out);
            self.settle_doubts();
        }
        self.flush(now, out);
    }

    fn take_image(&mut self, image: Arc<SourceImage>, out: &mut Vec<Effect>) {
        let before = std::mem::replace(&mut self.survey.image, image);
        self.brokers_changed(out);
        self.follow_leaders(&before, out);
        self.route_lookups();
    }

    /// Asks what is due, or has another link ask it.
    pub(super) fn advance_survey(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !self.options.follows_metadata {
            self.ask_for_refresh(now, out);
            return;
        }
        let due = self.survey.due();
        if now < due {
            self.timers.set(Timer::Survey, due);
            return;
        }
        let timeout = self.options.request_timeout;
        let Some((_, conn)) = self.ready_line(LineKey::Survey, now, out) else { return };
        if conn.is_waiting() {
            return;
        }
        let Some((request, full)) = self.survey.next_request(now) else { return };
        self.survey.not_before = now.plus(self.options.metadata_refresh_least);
        self.doubts.asks();
        let Some((peer, conn)) = self.ready_line(LineKey::Survey, now, out) else { return };
        let version = conn.spoken().metadata;
        let about = About::Metadata { full };
        let bytes = conn.ask(ApiKey::METADATA, version, about, |writer| {
            request.write(writer, version);
        });
        out.push(Effect::Send { peer, bytes });
        self.timers.set(Timer::Line(LineKey::Survey), now.plus(timeout));
    }

    fn ask_for_refresh(&mut self, now: Now, out: &mut Vec<Effect>) {
        let survey = &mut self.survey;
        if survey.image.brokers.is_empty() || (survey.wanted.is_empty() && !survey.all_wanted) {
            return;
        }
        if now < survey.not_before {
            self.timers.set(Timer::Survey, survey.not_before);
            return;
        }
        survey.not_before = now.plus(self.options.metadata_refresh_least);
        let all = std::mem::take(&mut survey.all_wanted);
        let wanted = std::mem::take(&mut survey.wanted);
        let topics = if all { Vec::new() } else { wanted.into_iter().collect() };
        let ticket = self.doubts.draw_ticket();
        out.push(Effect::RefreshWanted { topics, ticket });
    }

    /// A broker has answered with metadata.
    pub(super) fn surveyed(
        &mut self,
        full: bool,
        (frame, body, version): (&[u8], Reader<'_>, i16),
        now: Now,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        // Behind the throttle time, which comes first in all versions that we speak.
        let told = frame.get(body.position() + 4..).unwrap_or_default();
        let listing = (crc32c(told), told.len());
        let periodic = full && now >= self.survey.all_at;
        if full {
            let allowance = f64::from(self.options.metadata_bytes_per_second.max(1));
            let cost = Duration::from_secs_f64(told.len() as f64 / allowance);
            self.survey.all_at = now.plus(self.options.metadata_max_age.max(cost));
            let least = self.options.metadata_refresh_least.max(cost / 4);
            self.survey.all_not_before = now.plus(least);
        }
        let changed = if full && self.survey.is_as_before(listing) {
            self.doubts.told_again();
            false
        } else {
            self.take_answer(full, body, version, out)?
        };
        if full {
            self.survey.last_all = Some(listing);
        }
        if self.doubts.wants_echo() {
            let mut image = SourceImage::clone(&self.survey.image);
            self.doubts.stamp(&mut image);
            out.push(Effect::Image(Arc::new(image)));
        }
        self.settle_doubts();
        self.survey.fruitless = match changed || periodic {
            true => 0,
            false => self.survey.fruitless + 1,
        };
        if self.survey.fruitless >= FRUITLESS_MAX && self.brokers.len() > 1 {
            self.survey.fruitless = 0;
            self.survey.next_candidate();
            self.hang_up(LineKey::Survey, "knows nothing new; asking another broker", out);
        }
        Ok(())
    }

    fn take_answer(
        &mut self,
        full: bool,
        body: Reader<'_>,
        version: i16,
        out: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        let api = ApiKey::METADATA;
        let bytes = |error| Refusal::Bytes { api, version, error };
        let mut reader = body;
        let answer = MetadataResponse::read(&mut reader, version).map_err(bytes)?;
        reader.finish().map_err(bytes)?;
        if !answer.error_code.is_none() {
            return Err(Refusal::Error { api, version, error: answer.error_code });
        }
        self.check_claim(&answer).map_err(|reason| Refusal::Nonsense { api, version, reason })?;
        let survey = &mut self.survey;
        let surveyed = survey
            .atlas
            .survey(&survey.image, &answer, full, &self.options.topics)
            .map_err(|unusable| Refusal::Nonsense { api, version, reason: unusable.to_string() })?;
        if !surveyed.ask.is_empty() {
            survey.want(surveyed.ask);
        }
        let image = surveyed.image.as_ref().unwrap_or(&survey.image);
        self.doubts.told(full, &answer, image, &survey.atlas);
        let Some(mut image) = surveyed.image else { return Ok(false) };
        self.doubts.stamp(Arc::make_mut(&mut image));
        out.push(Effect::Image(Arc::clone(&image)));
        self.take_image(image, out);
        Ok(true)
    }
}

impl Link {
    /// Whether what was mirrored before can be this cluster's. Only the first answer is asked: the id of
    /// its cluster is kept.
    fn check_claim(&self, answer: &MetadataResponse) -> Result<(), String> {
        let ours = &self.options.unclaimed;
        if self.survey.image.cluster_id.is_some() || ours.is_empty() {
            return Ok(());
        }
        let is_proof = |topic: &MetadataResponseTopic| {
            let ours = topic.name.as_deref().and_then(|name| ours.get(name));
            ours.is_some_and(|&id| id == topic.topic_id && !id.is_zero())
        };
        if answer.topics.iter().any(is_proof) {
            return Ok(());
        }
        let cluster = answer.cluster_id.as_deref().unwrap_or("without an id");
        Err(format!(
            "it belongs to cluster {cluster}, none of the topics here has the id that it has there, and \
             the data folder does not say whose they are: if they are that cluster's say so by \
             --cluster-id, else give --from brokers of another one, or another --data"
        ))
    }
}

impl Survey {
    /// Whether a full listing says what the one before said, and nothing hangs on hearing it again.
    fn is_as_before(&self, listing: (u32, usize)) -> bool {
        self.last_all == Some(listing) && self.atlas.is_settled()
    }
}
