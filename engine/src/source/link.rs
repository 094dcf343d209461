//! The whole talk of one shard with the source cluster: events in, effects out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use wire::api::ApiKey;
use wire::codec::Reader;
use wire::fetch::{FetchResponse, NAMES_MOST};
use wire::ids::BrokerId;

use super::backoff::{Random, delay};
use super::conn::{About, Heard, Refusal};
use super::doubt::Doubts;
use super::fetcher::{Endpoint, Fetcher, Turn};
use super::follow::{FetcherKey, Table};
use super::image::SourceImage;
use super::line::{Address, Line, LineKey};
use super::lookup::{Lookups, Question};
use super::options::LinkOptions;
use super::survey::Survey;
use super::timers::Timers;
use super::{Effect, Fetched, PeerKey};
use crate::ids::{Now, PartitionKey};
use crate::io::Buffer;

/// Answers in a row without news that came before the broker could have waited for some; after
/// them the next request is held back.
const HASTY_ANSWERS_MAX: u32 = 3;

/// What a moment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Line(LineKey),
    /// The next request may go.
    Fetcher(FetcherKey),
    Partition(PartitionKey),
    Lookup(PartitionKey, Question),
    Survey,
}

/// Somebody who cannot be spoken with.
#[derive(Debug)]
pub(super) struct Unreachable {
    /// None for a bootstrap server.
    pub(super) broker: Option<BrokerId>,
    /// What came from there at last that cannot be used.
    pub(super) refusal: Option<String>,
}

/// The talk of one shard with the source cluster.
///
/// Each event is delivered once, with the moment it happened. Calls without effects of their own
/// ([`Link::fetch`], [`Link::look_up`], [`Link::refresh`] and so on) are carried out with the next
/// call that has some; until then [`Link::deadline`] says at once.
#[derive(Debug)]
pub struct Link {
    pub(super) options: LinkOptions,
    pub(super) client_id: Arc<str>,
    pub(super) random: Random,
    pub(super) timers: Timers<Timer>,

    pub(super) survey: Survey,
    pub(super) doubts: Doubts,
    /// Empty between calls; kept for its room.
    pub(super) doubtful: Vec<PartitionKey>,
    /// Where brokers say that they listen: what the image says, and newer words of brokers.
    pub(super) brokers: BTreeMap<BrokerId, Address>,

    pub(super) lines: BTreeMap<LineKey, Line>,
    pub(super) peers: BTreeMap<PeerKey, LineKey>,
    pub(super) next_peer: u64,
    pub(super) resolving: BTreeSet<Arc<str>>,
    /// Who was said to be unreachable and has not recovered.
    pub(super) unreachable: BTreeMap<String, Unreachable>,
    /// Whether metadata was had since the last time that it could not be.
    pub(super) has_a_way: bool,
    /// Somebody was asked for metadata, and nobody has given any since.
    pub(super) way_lost: bool,

    pub(super) table: Table,
    pub(super) fetchers: BTreeMap<FetcherKey, Fetcher>,
    /// Partitions whose leader is not known, or not where it listens.
    pub(super) homeless: BTreeSet<PartitionKey>,
    /// Fetchers that want to be looked at.
    pub(super) awake: BTreeSet<FetcherKey>,
    pub(super) lookups: Lookups,
    /// Something was asked for that the next flush carries out.
    pub(super) touched: bool,
    started: bool,
}

impl Link {
    /// A link that has said nothing yet.
    #[must_use]
    pub fn new(options: LinkOptions, seed: u64) -> Self {
        let cluster_id = options.cluster_id.as_deref().map(Arc::from);
        let image = SourceImage { cluster_id, ..SourceImage::default() };
        let mut random = Random::new(seed);
        Self {
            client_id: options.client_id.as_str().into(),
            survey: Survey::new(image, options.follows_metadata, random.next()),
            doubts: Doubts::new(options.shard, options.follows_metadata),
            doubtful: Vec::new(),
            options,
            random,
            timers: Timers::new(),
            brokers: BTreeMap::new(),
            lines: BTreeMap::new(),
            peers: BTreeMap::new(),
            next_peer: 0,
            resolving: BTreeSet::new(),
            unreachable: BTreeMap::new(),
            has_a_way: false,
            way_lost: false,
            table: Table::default(),
            fetchers: BTreeMap::new(),
            homeless: BTreeSet::new(),
            awake: BTreeSet::new(),
            lookups: Lookups::default(),
            touched: false,
            started: false,
        }
    }

    /// Begins.
    pub fn start(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.started = true;
        self.flush(now, out);
    }

    /// When to call [`Link::on_time`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        let at_once = self.touched || !self.awake.is_empty() || self.lookups.is_awake();
        if at_once && self.started { Some(Now(0)) } else { self.timers.next() }
    }

    /// Whether no broker of the source can be used: this link is to follow metadata and nobody gives it
    /// any, or none of them can be fetched from.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.options.follows_metadata && self.way_lost || self.is_fetched_from_nobody()
    }

    /// How many brokers of the cluster cannot be spoken with. One bootstrap server is enough: the
    /// others count where none answers.
    #[must_use]
    pub fn unreachable(&self) -> usize {
        let counts = |one: &&Unreachable| match one.broker {
            Some(id) => self.survey.image.brokers.contains_key(&id),
            None => !self.has_a_way,
        };
        self.unreachable.values().filter(counts).count()
    }

    /// Does what time has made due.
    pub fn on_time(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Line(line) => self.line_due(line, now, out),
                Timer::Fetcher(fetcher) => {
                    self.awake.insert(fetcher);
                }
                Timer::Partition(key) => self.rested(key, out),
                Timer::Lookup(key, question) => self.lookup_rested((key, question)),
                Timer::Survey => {}
            }
        }
        self.flush(now, out);
    }

    /// A frame begins to come.
    pub fn frame_begins(&mut self, peer: PeerKey, now: Now) {
        if let Some(LineKey::Fetcher(key)) = self.peers.get(&peer)
            && let Some(fetcher) = self.fetchers.get_mut(key)
            && fetcher.turn == Turn::Brokers
        {
            fetcher.answer_begins(now);
        }
    }

    /// We do not read the frame on for now: its broker is not to blame for the time that takes.
    pub fn frame_waits(&mut self, peer: PeerKey) {
        if let Some(&line) = self.peers.get(&peer) {
            self.timers.clear(Timer::Line(line));
        }
    }

    /// We read on.
    pub fn frame_goes_on(&mut self, peer: PeerKey, now: Now) {
        if let Some(&line) = self.peers.get(&peer) {
            self.timers.set(Timer::Line(line), now.plus(self.options.request_timeout));
        }
    }

    /// Whose records a frame brings first, and where in it they are, as far as its first bytes say:
    /// for whoever wants to put the rest of it where they can be written from.
    #[must_use]
    pub fn first_records(
        &mut self,
        peer: PeerKey,
        head: &[u8],
    ) -> Option<(PartitionKey, Range<usize>)> {
        let (version, body) = self.conn_of(peer)?.1.fetch_answer(head)?;
        let (topic, partition, records) =
            FetchResponse::first_records(head, body.position(), version)?;
        let key = self.table.find(topic, version > NAMES_MOST, partition)?;
        Some((key, records))
    }

    /// A frame has come: what stands behind its size.
    pub fn frame(&mut self, peer: PeerKey, frame: Buffer, now: Now, out: &mut Vec<Effect>) {
        let Some((line, conn)) = self.conn_of(peer) else { return };
        let heard = match conn.heard(&frame) {
            Ok(heard) => heard,
            Err(refusal) => {
                self.refuse(line, &refusal.to_string(), now, out);
                return self.flush(now, out);
            }
        };
        let answered = match heard {
            Heard::Say(bytes) => {
                out.push(Effect::Send { peer, bytes });
                self.timers.set(Timer::Line(line), now.plus(self.options.request_timeout));
                return;
            }
            Heard::Ready => {
                self.rest_line(line, now);
                self.line_ready(line);
                Ok(None)
            }
            Heard::Answer { about, version, body } => {
                self.rest_line(line, now);
                self.answered(line, about, (&frame, body, version), now, out)
            }
        };
        match answered {
            Ok(None) => {}
            Ok(Some(partitions)) => {
                out.push(Effect::Fetched(Fetched { peer, frame, partitions }));
            }
            Err(refusal) => self.refuse(line, &refusal.to_string(), now, out),
        }
        self.flush(now, out);
    }

    /// The mirrors have seen what a fetch brought: the next request may go.
    pub fn resume(&mut self, peer: PeerKey, now: Now, out: &mut Vec<Effect>) {
        if let Some(LineKey::Fetcher(key)) = self.peers.get(&peer).copied()
            && let Some(fetcher) = self.fetchers.get_mut(&key)
            && fetcher.turn == Turn::Mirrors
        {
            fetcher.turn = Turn::Ours;
            self.awake.insert(key);
        }
        self.flush(now, out);
    }

    fn line_ready(&mut self, line: LineKey) {
        match line {
            LineKey::Survey => {}
            LineKey::Lookups(broker) => self.lookups.wake(broker),
            LineKey::Fetcher(key) => {
                if let Some(fetcher) = self.fetchers.get_mut(&key) {
                    fetcher.doubt = self.doubts.doubt();
                }
                self.awake.insert(key);
            }
        }
    }

    /// What an answer brought for the mirrors; nothing where it was for the link alone.
    fn answered(
        &mut self,
        line: LineKey,
        about: About,
        (frame, body, version): (&[u8], Reader<'_>, i16),
        now: Now,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Vec<super::FetchedPartition>>, Refusal> {
        let partitions = match (line, about) {
            (LineKey::Survey, About::Metadata { full }) => {
                self.surveyed(full, (frame, body, version), now, out)?;
                None
            }
            (LineKey::Lookups(broker), About::Lookups(asked)) => {
                self.lookups_answered(broker, &asked, (body, version), now, out)?;
                None
            }
            (LineKey::Fetcher(fetcher), About::Fetch) => {
                self.fetched(fetcher, (frame, body, version), now, out)?
            }
            (line, about) => unreachable!("{about:?} was never asked on {line:?}"),
        };
        self.line_works(line, out);
        Ok(partitions)
    }

    fn fetched(
        &mut self,
        key: FetcherKey,
        (frame, body, version): (&[u8], Reader<'_>, i16),
        now: Now,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Vec<super::FetchedPartition>>, Refusal> {
        let Some(fetcher) = self.fetchers.get_mut(&key) else { return Ok(None) };
        let heard = fetcher.heard(frame, body, version, &mut self.table)?;
        fetcher.not_before = now.plus(heard.throttle);
        let news = !heard.partitions.is_empty();
        fetcher.turn = if news { Turn::Mirrors } else { Turn::Ours };
        // A broker that answers at once with nothing must not make us ask at once for ever.
        let is_empty = !heard.partitions.iter().any(super::FetchedPartition::is_answer);
        let hasty = is_empty && now.since(fetcher.asked_at) < self.options.fetch_max_wait / 2;
        fetcher.hasty_answers = if hasty { fetcher.hasty_answers.saturating_add(1) } else { 0 };
        let patience = fetcher.hasty_answers.max(fetcher.refused_sessions);
        if let Some(failures) = patience.checked_sub(HASTY_ANSWERS_MAX).filter(|&more| more > 0) {
            let (least, most) = (self.options.retry_backoff_least, self.options.fetch_max_wait);
            let wait = delay(least.min(most), most, failures, &mut self.random);
            fetcher.not_before = fetcher.not_before.max(now.plus(wait));
        }
        self.awake.insert(key);
        self.learn(&heard.endpoints, out);
        for trouble in &heard.troubles {
            self.in_trouble(trouble, key.broker, now, out);
        }
        Ok(news.then_some(heard.partitions))
    }

    /// A broker says where others listen.
    fn learn(&mut self, endpoints: &[Endpoint], out: &mut Vec<Effect>) {
        let mut moved = BTreeSet::new();
        for Endpoint { broker, host, port } in endpoints {
            let address = Address { host: host.as_str().into(), port: *port };
            if self.move_broker(*broker, address) {
                moved.insert(*broker);
            }
        }
        if !moved.is_empty() {
            self.hang_up_to(&moved, out);
            self.house_the_homeless();
        }
    }

    /// Carries out what was asked for.
    pub(super) fn flush(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !self.started {
            return;
        }
        self.touched = false;
        for fetcher in std::mem::take(&mut self.awake) {
            self.ask_for_records(fetcher, now, out);
        }
        for broker in self.lookups.take_awake() {
            self.ask_lookups(broker, now, out);
        }
        self.advance_survey(now, out);
    }

    /// Sends a fetcher's next request where it is its turn.
    fn ask_for_records(&mut self, key: FetcherKey, now: Now, out: &mut Vec<Effect>) {
        let Some(fetcher) = self.fetchers.get(&key) else { return };
        if fetcher.turn != Turn::Ours || !fetcher.is_wanted() {
            return;
        }
        if now < fetcher.not_before {
            self.timers.set(Timer::Fetcher(key), fetcher.not_before);
            return;
        }
        let line = LineKey::Fetcher(key);
        let Some((_, conn)) = self.ready_line(line, now, out) else { return };
        let spoken = conn.spoken().fetch;
        self.rest_the_doubtful(key, spoken, now);
        if !self.fetchers.get(&key).is_some_and(Fetcher::is_wanted) {
            return;
        }
        let Self { lines, fetchers, table, options, .. } = self;
        let fetcher = fetchers.get_mut(&key).expect("it was there a moment ago");
        let open = lines.get_mut(&line).and_then(Line::ready);
        let (peer, conn) = open.expect("it was ready a moment ago");
        let version = fetcher.version(spoken);
        let bytes = conn.ask(ApiKey::FETCH, version, About::Fetch, |writer| {
            fetcher.write(writer, version, table, options);
        });
        fetcher.turn = Turn::Brokers;
        fetcher.asked_at = now;
        let patience = options.fetch_max_wait.saturating_add(options.request_timeout);
        self.timers.set(Timer::Line(line), now.plus(patience));
        out.push(Effect::Send { peer, bytes });
    }
}
