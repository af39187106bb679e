//! What is kept between runs: costs and acceptance, per model, device and way of sampling.
//!
//! There is one small file for each [`Subject`] in a directory that the caller chooses. Losing one only costs a few slow rounds, so
//! reading never fails: a file that is missing, damaged, of another version or out of range counts as unknown. Writing replaces
//! the file in one step; of two runs at the same time the later one's file stays.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

use super::{
    Proposer, TARGET,
    arm::{Memory, memory_key},
    controller::Controller,
    costs::{Costs, DEFAULT_BUDGET, MOST_ROWS, measure},
    policy::SourceInfo,
};
use crate::{
    Context, Error, Result, RunLayers,
    batch::SeqId,
    files::{read_limited, write_whole},
    hash::fnv1a,
    placement::Placement,
};

const SCHEMA: u32 = 1;
const MOST_BYTES: u64 = 256 << 10;
/// How many sources are kept for a subject; those of the current run come first.
const MOST_SOURCES: usize = 64;
/// How many files are kept in the directory; the oldest are removed.
const MOST_FILES: usize = 128;
const EXTENSION: &str = "json";

/// The conditions under which something was learnt. If any of them differs, nothing is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The model's fingerprint.
    pub model: String,
    /// The device, as [`Context::identity`] names it, and whatever else sets machines apart.
    pub device: String,
    /// Threads of the CPU.
    pub threads: usize,
    /// Whether sampling is greedy: random draws reject tokens that greedy choices would accept.
    pub greedy: bool,
    /// The version of this program: another one has other kernels.
    pub version: String,
}

impl Subject {
    /// The subject of this context.
    pub fn new(context: &Context, greedy: bool) -> Self {
        // With another placement the costs are different.
        let of = |placement: &Placement| {
            format!("{:?} {:?} {:?}", placement.on_gpu(), placement.in_ram(), placement.planes_apart())
        };
        let placement = if context.is_divided() { of(context.placement()) } else { String::new() };
        Subject {
            model: context.fingerprint(),
            device: context.identity() + &placement,
            threads: context.threads(),
            greedy,
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn file_name(&self) -> String {
        let Subject { model, device, threads, greedy, version } = self;
        let whole = format!("{model}\n{device}\n{threads}\n{greedy}\n{version}");
        format!("{:016x}.{EXTENSION}", fnv1a(whole.bytes()))
    }
}

/// What is known of a subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// T(n)/T(1) for n = 1..
    pub rows: Vec<f64>,
    /// Draft steps in plain steps, and acceptance, by source.
    pub draft: BTreeMap<String, f64>,
    /// Acceptance by source.
    pub sources: Memory,
    /// Other programs used the cores meanwhile: the measured times say little of an idle machine.
    #[serde(default)]
    pub crowded: bool,
}

impl Learned {
    /// What a controller has learnt.
    pub fn of(controller: &Controller) -> Self {
        let (mut draft, mut sources) = (BTreeMap::new(), controller.memory());
        for (source, info) in controller.sources().enumerate() {
            if !controller.costs().looks_up(source) {
                draft.insert(memory_key(info), controller.costs().draft(source));
            }
        }
        let present: Vec<String> = controller.sources().map(memory_key).collect();
        let mut spare = MOST_SOURCES.saturating_sub(present.len());
        sources.retain(|name, _| {
            let stays = present.contains(name) || spare > 0;
            spare = spare.saturating_sub(usize::from(!present.contains(name)));
            stays
        });
        Learned { rows: controller.costs().all_rows().to_vec(), draft, sources, crowded: false }
    }

    /// The same, learnt while other programs used the cores: the costs known `before` stay.
    pub fn crowded(self, before: Option<Learned>) -> Self {
        match before.filter(|before| !before.crowded) {
            Some(Learned { rows, draft, .. }) => Learned { rows, draft, ..self },
            None => Learned { crowded: true, ..self },
        }
    }

    /// The costs that were kept, and guesses for new sources.
    pub fn costs(&self, sources: &[SourceInfo]) -> Costs {
        let known: Vec<Option<f64>> =
            sources.iter().map(|s| self.draft.get(&memory_key(s)).copied()).collect();
        Costs::recalled(sources, &self.rows, &known)
    }

    fn is_sound(&self) -> bool {
        let rows = &self.rows;
        let sane = |x: &f64| (0.0..1e4).contains(x);
        rows.len() == MOST_ROWS
            && rows.is_sorted()
            && rows[0] == 1.0
            && rows.iter().chain(self.draft.values()).all(sane)
            && self.draft.values().all(|&c| c > 0.0)
            && self.draft.len() <= MOST_SOURCES
            && self.sources.len() <= MOST_SOURCES
            && self.sources.values().all(|known| known.is_sound())
    }
}

/// Guesses costs by the bytes that are read, and by how fast the memory is where they are. More rows read more experts.
fn guess(context: &Context, sources: &[SourceInfo], drafts: &[Option<RunLayers>]) -> Costs {
    let step = context.expected(None, 1);
    let reads = |rows| context.expected(None, rows).total() / step.total();
    let far = |mask: &RunLayers| context.expected(Some(mask), 1).total() / step.total();
    let of_source = |(source, mask): (&SourceInfo, &Option<RunLayers>)| match mask {
        Some(mask) if context.is_divided() => far(mask),
        _ => source.cost,
    };
    let draft: Vec<f64> = std::iter::zip(sources, drafts).map(of_source).collect();
    let waits = if context.is_divided() { step.file / step.total() } else { 0.0 };
    Costs::guess_reading(&draft, waits, reads).with_prefixes(sources)
}

/// The same for these proposers, with an empty cache.
pub fn prepare_for(
    context: &mut Context,
    proposers: &[Box<dyn Proposer>],
    learned: Option<Learned>,
) -> Result<Controller> {
    let infos: Vec<_> = proposers.iter().map(|p| p.info(context)).collect();
    let masks: Vec<_> = proposers.iter().map(|p| p.mask().cloned()).collect();
    prepare(context, TARGET, &infos, &masks, learned)
}

/// A controller that begins with what is known of the subject, or else with a short measurement after the tokens of `seq`; see
/// [`measure`]. `drafts` has each source's mask, if it has one.
pub fn prepare(
    context: &mut Context,
    seq: SeqId,
    sources: &[SourceInfo],
    drafts: &[Option<RunLayers>],
    learned: Option<Learned>,
) -> Result<Controller> {
    let way = context.speeds().map(|speeds| speeds.round_trip);
    let memory = match learned {
        Some(learned) if !learned.crowded => {
            return Ok(Controller::new(learned.costs(sources), learned.sources).with_round_trip(way));
        }
        Some(learned) => learned.sources,
        None => Memory::new(),
    };
    let mut costs = guess(context, sources, drafts);
    // Before weights are in their final arrangement, measured times would be different.
    if context.is_packed() {
        measure(context, seq, drafts, &mut costs, DEFAULT_BUDGET)?;
    }
    Ok(Controller::new(costs, memory).with_round_trip(way))
}

#[derive(Serialize, Deserialize)]
struct File {
    schema: u32,
    subject: Subject,
    learned: Learned,
}

/// A directory with such files.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The directory need not exist before the first write.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Store { directory: directory.into() }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What was kept for the subject, if it is sound.
    pub fn recall(&self, subject: &Subject) -> Option<Learned> {
        let bytes = read_limited(&self.directory.join(subject.file_name()), MOST_BYTES).ok()?;
        let file: File = serde_json::from_slice(&bytes).ok()?;
        let fits = file.schema == SCHEMA && file.subject == *subject;
        Some(file.learned).filter(|learned| fits && learned.is_sound())
    }

    /// Keeps what was learnt, in place of what was kept before.
    pub fn keep(&self, subject: &Subject, learned: &Learned) -> Result<()> {
        if !learned.is_sound() {
            return Ok(());
        }
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))?;
        let path = directory.join(subject.file_name());
        let file = File { schema: SCHEMA, subject: subject.clone(), learned: learned.clone() };
        let text = serde_json::to_vec(&file).map_err(|e| Error::io(&path, e.into()))?;
        write_whole(&path, text)?;
        self.prune();
        Ok(())
    }

    /// Removes the oldest of our files, and no others: the user may keep more in the directory. If something fails here, the next run
    /// tries it again.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let named: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| has_our_name(path)).collect();
        if named.len() <= MOST_FILES {
            return;
        }
        let ours = named.into_iter().filter(|path| is_ours(path));
        let modified = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
        let mut ours: Vec<(SystemTime, PathBuf)> =
            ours.filter_map(|path| Some((modified(&path)?, path))).collect();
        ours.sort();
        for (_, path) in ours.iter().take(ours.len().saturating_sub(MOST_FILES)) {
            let _ = fs::remove_file(path);
        }
    }
}

fn has_our_name(path: &Path) -> bool {
    let is_hash = |stem: &str| stem.len() == 16 && stem.bytes().all(|b| b.is_ascii_hexdigit());
    path.extension().is_some_and(|e| e == EXTENSION)
        && path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_hash)
}

/// Whether a file was written here: its name is the hash of the subject inside.
fn is_ours(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "schema")]
        _schema: u32,
        subject: Subject,
    }
    let is_regular = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let head = is_regular
        .then(|| read_limited(path, MOST_BYTES).ok())
        .flatten()
        .and_then(|bytes| serde_json::from_slice::<Head>(&bytes).ok());
    head.is_some_and(|head| path.file_name().is_some_and(|name| name == head.subject.file_name().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::policy::{Drafted, Offer, Policy, Round, RoundChoice};

    fn subject() -> Subject {
        Subject { model: "0123".into(), device: "cpu".into(), threads: 2, greedy: true, version: "1".into() }
    }

    fn sources() -> [SourceInfo; 2] {
        [SourceInfo::lookup(), SourceInfo::mask("half", 0.5)]
    }

    #[test]
    fn costs_of_a_crowded_machine_take_no_ones_place() {
        let of = |slope: f64| Learned {
            rows: (0..MOST_ROWS).map(|n| 1.0 + slope * n as f64).collect(),
            draft: BTreeMap::from([("half".into(), slope)]),
            ..Learned::of(&experienced(true))
        };
        let (quiet, busy) = (of(0.1), of(2.0));
        let after = busy.clone().crowded(Some(quiet.clone()));
        assert_eq!((&after.rows, &after.draft, after.crowded), (&quiet.rows, &quiet.draft, false));
        assert_eq!(after.sources, busy.sources);
        // Where nothing was known, nothing of these costs is believed: only acceptance stays.
        let first = busy.clone().crowded(None);
        assert!(first.crowded && first.is_sound());
        assert_eq!(first.clone().crowded(Some(first.clone())), first);
        let mut file = serde_json::to_value(&first).unwrap();
        assert!(serde_json::from_value::<Learned>(file.clone()).unwrap().crowded);
        // As earlier versions wrote it.
        file.as_object_mut().unwrap().remove("crowded");
        assert!(!serde_json::from_value::<Learned>(file).unwrap().crowded);
    }

    /// A controller that has seen the mask accepted, or rejected, many times.
    fn experienced(right: bool) -> Controller {
        let mut controller = Controller::new(Costs::guess(&sources()), Memory::new());
        controller.start(&sources());
        for _ in 0..200 {
            let choice = controller.choose(&[Offer { source: 1, most: 4, ready: None, guide: None }]);
            let (source, k) = match choice {
                RoundChoice::Plain => (None, 0),
                RoundChoice::Draft { source, .. } => (Some(source), 1),
            };
            controller.record(&Round {
                source,
                drafted: &[Drafted { confidence: 0.8 }][..k],
                draft_steps: k,
                accepted: if right { k } else { 0 },
                draft_seconds: 0.003 * k as f64,
                verify_seconds: 0.01 + 0.002 * k as f64,
                ..Round::default()
            });
        }
        controller
    }

    #[test]
    fn knowledge_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path().join("not/there/yet"));
        assert_eq!(store.recall(&subject()), None);
        let learned = Learned::of(&experienced(true));
        store.keep(&subject(), &learned).unwrap();
        assert_eq!(store.recall(&subject()), Some(learned.clone()));
        let others = [
            Subject { model: "4567".into(), ..subject() },
            Subject { threads: 3, ..subject() },
            Subject { greedy: false, ..subject() },
            Subject { version: "2".into(), ..subject() },
        ];
        others.iter().for_each(|other| assert_eq!(store.recall(other), None));
        let costs = learned.costs(&sources());
        assert!((costs.draft(1) - 0.3).abs() < 0.05 && (costs.rows(2) - 1.2).abs() < 0.05);
        assert!(costs.looks_up(0));
    }

    /// Tokens in the first rounds of a run that begins with this knowledge and meets a source like that.
    fn drafts_in_the_first_rounds(memory: Memory) -> usize {
        let mut controller = Controller::new(Costs::frozen(&sources()), memory);
        controller.start(&sources());
        let mut drafts = 0;
        for _ in 0..12 {
            let choice = controller.choose(&[Offer { source: 1, most: 4, ready: None, guide: None }]);
            let k = usize::from(choice != RoundChoice::Plain);
            drafts += k;
            controller.record(&Round {
                source: (k > 0).then_some(1),
                drafted: &[Drafted { confidence: 0.8 }][..k],
                draft_steps: k,
                accepted: 0,
                draft_seconds: 0.003,
                verify_seconds: 0.01,
                ..Round::default()
            });
        }
        drafts
    }

    #[test]
    fn a_second_run_does_not_pay_for_the_lesson_again() {
        let first = drafts_in_the_first_rounds(Memory::new());
        let second = drafts_in_the_first_rounds(Learned::of(&experienced(false)).sources);
        assert!(first >= 2 && second == 0, "{first} {second}");
    }

    #[test]
    fn damage_is_ignorance() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        let learned = Learned::of(&experienced(true));
        store.keep(&subject(), &learned).unwrap();
        let path = directory.path().join(subject().file_name());
        let good = fs::read_to_string(&path).unwrap();
        let broken = [
            String::new(),
            "{}".into(),
            good[..good.len() / 2].into(),
            good.replace("\"schema\":1", "\"schema\":2"),
            good.replace("\"rows\":[1.0,", "\"rows\":[-1.0,"),
            good.replace("\"rows\":[1.0,", "\"rows\":[1e999,"),
            good.replace("\"draft\":{", "\"draft\":{\"x\":0,"),
            good.replace("\"model\":\"0123\"", "\"model\":\"9999\""),
            good.replace("\"weights\":[", "\"weights\":[1e9,"),
            "[".repeat(100_000),
        ];
        for text in broken {
            assert_ne!(text, good);
            fs::write(&path, &text).unwrap();
            assert_eq!(store.recall(&subject()), None, "{}", &text[..text.len().min(200)]);
        }
        store.keep(&subject(), &learned).unwrap();
        assert_eq!(store.recall(&subject()), Some(learned));
    }

    #[test]
    fn many_writers_leave_a_whole_file_and_the_directory_stays_small() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        let both = [true, false].map(|right| Learned::of(&experienced(right)));
        std::thread::scope(|scope| {
            for learned in &both {
                let (store, both) = (&store, &both);
                scope.spawn(move || {
                    for _ in 0..50 {
                        store.keep(&subject(), learned).unwrap();
                        let read = store.recall(&subject()).expect("a whole file at any time");
                        assert!(both.contains(&read));
                    }
                });
            }
        });
        for i in 0..MOST_FILES + 20 {
            store.keep(&Subject { model: i.to_string(), ..subject() }, &both[0]).unwrap();
        }
        let files = fs::read_dir(directory.path()).unwrap().count();
        assert!(files <= MOST_FILES, "{files} files, temporary ones included");
    }

    #[test]
    fn the_users_own_files_stay() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        let learned = Learned::of(&experienced(true));
        let theirs: Vec<PathBuf> = (0..MOST_FILES + 20)
            .flat_map(|i| [format!("notes-{i}.json"), format!("{i:016x}.json"), format!("{i:016X}.txt")])
            .map(|name| directory.path().join(name))
            .collect();
        store.keep(&subject(), &learned).unwrap();
        let ours = fs::read(directory.path().join(subject().file_name())).unwrap();
        for (i, path) in theirs.iter().enumerate() {
            // Even a copy of ours under another name.
            fs::write(path, if i % 2 == 0 { b"{}" } else { &ours[..] }).unwrap();
        }
        for i in 0..MOST_FILES + 20 {
            store.keep(&Subject { model: i.to_string(), ..subject() }, &learned).unwrap();
        }
        assert!(theirs.iter().all(|path| path.exists()));
        let all = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(all, theirs.len() + MOST_FILES);
    }
}
