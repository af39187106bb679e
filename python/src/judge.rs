//! Drafts under masks, judged on a text that was read once: what a search for masks asks.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use pyo3::{prelude::*, types::PyDict};
use serde_json::json;
use spec_run::search::candidate::Movable;
use spec_run::search::judge::Judge as _;
use spec_run::search::speed::tokens_if_independent;
use spec_run::{
    Context, Tokenizer,
    search::{
        Calibration, CalibrationSettings, Candidate, Measured, Member, ModelJudge, PassCosts, Proof, Score,
        State, Stopwatch, WallClock, make_room, states_of,
    },
};

use crate::{
    config,
    errors::{raised, wrong},
    layers::RunLayers,
    model::Model,
    signals::{self, lock},
};

type Work = Box<dyn FnOnce(&mut ModelJudge) + Send>;

enum Command {
    Do(Work),
    /// The last one: texts are made with these.
    Measure(Vec<Member>, PassCosts, f64, mpsc::Sender<spec_run::Result<Vec<Measured>>>),
}

/// Judges drafts under masks, on positions of a text that the full model has read once. Masks are written as a letter for
/// each sublayer, attention and MLP of the first layer first: `r` runs, `c` runs coarse, `s` is skipped, `1` to `9` are so many
/// experts. Equal questions have equal answers, on every machine.
#[pyclass(module = "spec_run", frozen)]
pub struct Judge {
    commands: Mutex<Option<mpsc::Sender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    n_layer: usize,
    draft_max: usize,
    /// Names text and positions.
    #[pyo3(get)]
    fingerprint: String,
    /// Positions for the search.
    #[pyo3(get)]
    positions: usize,
    /// Positions that the search never sees.
    #[pyo3(get)]
    held_out: usize,
    #[pyo3(get)]
    device: String,
    /// States that sublayers of this model may go to.
    #[pyo3(get)]
    states: String,
    /// By sublayer, whether there is something to skip.
    #[pyo3(get)]
    movable: Vec<bool>,
}

impl Judge {
    /// Has the thread do something, and hears Ctrl-C meanwhile.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut ModelJudge) -> spec_run::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (reply, answer) = mpsc::channel();
        self.send(Command::Do(Box::new(move |judge| _ = reply.send(what(judge)))))?;
        wait(py, answer)
    }

    fn send(&self, command: Command) -> PyResult<()> {
        let commands = lock(&self.commands);
        let sent = commands.as_ref().and_then(|commands| commands.send(command).ok());
        sent.ok_or_else(ended)
    }

    fn candidate(&self, letters: &str) -> PyResult<Candidate> {
        let candidate = Candidate::try_from(letters.to_owned()).map_err(wrong)?;
        match candidate.len() == 2 * self.n_layer {
            true => Ok(candidate),
            false => {
                let (of, needed) = (candidate.len(), 2 * self.n_layer);
                Err(wrong(format!("a mask of {of} sublayers, where the model has {needed}")))
            }
        }
    }

    fn costs(&self, json: &str) -> PyResult<PassCosts> {
        let costs: PassCosts = serde_json::from_str(json).map_err(|e| wrong(format!("costs: {e}")))?;
        let fit = costs.full.len() == 2 * self.n_layer && costs.rows.len() == self.draft_max + 1;
        fit.then_some(costs).ok_or_else(|| wrong("costs: of another model, or of drafts of another length"))
    }
}

fn ended() -> PyErr {
    wrong("the judge has ended: it failed, or its masks were measured; open another")
}

fn wait<T: Send>(py: Python<'_>, answer: mpsc::Receiver<spec_run::Result<T>>) -> PyResult<T> {
    signals::wait(py, &Mutex::new(answer))?.ok_or_else(ended)?.map_err(raised)
}

/// What is known when the text has been read.
struct Read {
    fingerprint: String,
    positions: usize,
    held_out: usize,
}

/// Reads the text, and then does what it is told.
fn serve(
    mut context: Context,
    tokenizer: Arc<Tokenizer>,
    calibration: impl FnOnce(&mut Context) -> spec_run::Result<Calibration>,
    read: mpsc::Sender<spec_run::Result<Read>>,
    commands: mpsc::Receiver<Command>,
) {
    let opened = calibration(&mut context).and_then(|calibration| {
        let fingerprint = calibration.fingerprint();
        let judge = ModelJudge::new(&mut context, calibration)?;
        Ok((judge, fingerprint))
    });
    let mut judge = match opened {
        Err(error) => {
            _ = read.send(Err(error));
            return;
        }
        Ok((judge, fingerprint)) => {
            let (positions, held_out) = (judge.positions(), judge.held_out());
            _ = read.send(Ok(Read { fingerprint, positions, held_out }));
            judge
        }
    };
    while let Ok(command) = commands.recv() {
        match command {
            Command::Do(work) => work(&mut judge),
            Command::Measure(members, costs, seconds, reply) => {
                let (context, prompts) = judge.into_prompts();
                let members: Vec<&Member> = members.iter().collect();
                let mut clock = WallClock { most_seconds: Some(seconds) };
                _ = reply.send(clock.speeds(context, &tokenizer, &prompts, &members, &costs));
                return;
            }
        }
    }
}

#[pymethods]
impl Judge {
    /// On a text of tokens, or on texts that the model writes itself. Half of the `positions` lead a search, the others are
    /// for its proof.
    #[new]
    #[pyo3(signature = (model, tokens=None, *, positions=1024, chunk=256, draft_max=8, **settings))]
    fn new(
        py: Python<'_>,
        model: &Model,
        tokens: Option<Vec<u32>>,
        positions: usize,
        chunk: usize,
        draft_max: usize,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        const MOST_DRAFTS: usize = 15;
        if !(1..=MOST_DRAFTS).contains(&draft_max) {
            return Err(wrong(format!("draft_max {draft_max}: 1 to {MOST_DRAFTS}")));
        }
        let (opened, tokenizer) = (&model.model, model.tokenizer.clone());
        let amount = CalibrationSettings { chunk: chunk.min(opened.n_ctx_train as usize), positions };
        amount.check().map_err(raised)?;
        let mut config = config::config(opened, settings)?;
        make_room(&mut config, &amount, draft_max, tokens.is_none());
        let context = config::open(py, opened, &config)?;
        let device = context.describe();
        let states = states_of(&context).into_iter().map(char::from).collect();
        let movable = Movable::of(&opened.plan);
        let movable = (0..2 * opened.n_layer()).map(|sublayer| movable.has(sublayer)).collect();
        let bos = tokenizer.added_bos();
        let (read, answer) = mpsc::channel();
        let (commands, received) = mpsc::channel();
        let writer = tokenizer.clone();
        let calibration = move |context: &mut Context| match tokens {
            Some(tokens) => Calibration::from_text(&tokens, bos, &amount),
            None => Calibration::written_by(context, &writer, &amount, |_| Ok(())),
        };
        let thread = std::thread::spawn(move || serve(context, tokenizer, calibration, read, received));
        let Read { fingerprint, positions, held_out } = wait(py, answer)?;
        Ok(Judge {
            commands: Mutex::new(Some(commands)),
            thread: Mutex::new(Some(thread)),
            n_layer: opened.n_layer(),
            draft_max,
            fingerprint,
            positions,
            held_out,
            device,
            states,
            movable,
        })
    }

    /// Times passes on this machine. What comes of it is JSON, for `speed`, `cost` and `prove`, on any machine.
    #[pyo3(signature = (states="s", seconds=None))]
    fn measure_costs(&self, py: Python<'_>, states: &str, seconds: Option<f64>) -> PyResult<String> {
        let states = states.chars().map(State::try_from).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let rows = self.draft_max + 1;
        let costs = self.ask(py, move |judge| {
            let place = judge.middle()?;
            PassCosts::measure(judge.context(), place, rows, &states, seconds)
        })?;
        Ok(json!(costs).to_string())
    }

    /// How the first tokens of drafts fare on positions of the search: agreement with the full model, overlap, divergence,
    /// perplexity.
    #[pyo3(signature = (mask, start=0, stop=None))]
    fn score<'py>(
        &self,
        py: Python<'py>,
        mask: &str,
        start: usize,
        stop: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (candidate, stop) = (self.candidate(mask)?, stop.unwrap_or(self.positions));
        if start >= stop || stop > self.positions {
            let all = self.positions;
            return Err(wrong(format!("positions {start} to {stop}: there are {all}")));
        }
        let score: Score = self.ask(py, move |judge| judge.score(&candidate, start..stop))?;
        let dict = PyDict::new(py);
        dict.set_item("positions", score.positions())?;
        dict.set_item("agreement", score.agreement())?;
        dict.set_item("overlap", score.overlap())?;
        dict.set_item("kl", score.kl())?;
        dict.set_item("ppl", score.perplexity())?;
        Ok(dict)
    }

    /// What a draft step under the mask costs, in plain steps, by the sum of its sublayers.
    fn cost(&self, mask: &str, costs: &str) -> PyResult<f64> {
        Ok(self.costs(costs)?.of(&self.candidate(mask)?))
    }

    /// The speedup that an agreement is worth, at the mask's cost, and the length of drafts that gives it.
    fn speed(&self, mask: &str, agreement: f64, costs: &str) -> PyResult<(f64, usize)> {
        let (candidate, costs) = (self.candidate(mask)?, self.costs(costs)?);
        let tokens = |k| tokens_if_independent(agreement, k);
        let best = costs.best(tokens, costs.of(&candidate), costs.prefix(&candidate.mask()));
        Ok((best.speedup, best.draft_len))
    }

    /// Times a draft step under each mask, in plain steps.
    #[pyo3(signature = (masks, seconds=None))]
    fn time_steps(&self, py: Python<'_>, masks: Vec<String>, seconds: Option<f64>) -> PyResult<Vec<f64>> {
        let masks =
            masks.iter().map(|mask| Ok(self.candidate(mask)?.mask())).collect::<PyResult<Vec<_>>>()?;
        self.ask(py, move |judge| {
            let place = judge.middle()?;
            WallClock { most_seconds: seconds }.steps(judge.context(), place, &masks)
        })
    }

    /// Whole drafts on positions that no search has seen, at the cost of a step: a proof, as JSON.
    fn prove(&self, py: Python<'_>, mask: &str, cost: f64, costs: &str) -> PyResult<String> {
        let (candidate, costs) = (self.candidate(mask)?, self.costs(costs)?);
        let (depth, prefix) = (self.draft_max, costs.prefix(&candidate.mask()));
        let proof = self.ask(py, move |judge| {
            let drafts = judge.drafts(&candidate, depth)?;
            Ok(Proof::new(cost, prefix, &drafts, depth))
        })?;
        Ok(json!(proof).to_string())
    }

    /// What a file of masks has of a mask with this proof, as JSON.
    fn described(&self, mask: &str, proof: &str, costs: &str, measured: Option<&str>) -> PyResult<String> {
        let member = self.member("", mask, proof, measured)?;
        let named = member.named(&self.costs(costs)?);
        let known = json!({
            "agreement": named.agreement,
            "overlap": named.overlap,
            "cost": named.cost,
            "predicted": named.predicted,
            "measured": named.measured,
        });
        Ok(known.to_string())
    }

    /// Makes texts with each of the masks and without, in turns: tokens per second and more of each, as JSON. Each mask comes
    /// with its proof. The judge ends with it.
    #[pyo3(signature = (masks, costs, seconds=20.0))]
    fn measure(
        &self,
        py: Python<'_>,
        masks: Vec<(String, String)>,
        costs: &str,
        seconds: f64,
    ) -> PyResult<Vec<String>> {
        let costs = self.costs(costs)?;
        let members = masks.iter().map(|(mask, proof)| self.member(mask, mask, proof, None));
        let members = members.collect::<PyResult<Vec<_>>>()?;
        let (reply, answer) = mpsc::channel();
        self.send(Command::Measure(members, costs, Duration::from_secs_f64(seconds).as_secs_f64(), reply))?;
        let measured = wait(py, answer)?;
        Ok(measured.iter().map(|one| json!(one).to_string()).collect())
    }

    /// The mask that letters spell.
    fn mask(&self, letters: &str) -> PyResult<RunLayers> {
        Ok(RunLayers(self.candidate(letters)?.mask()))
    }

    /// The letters that spell a mask.
    fn letters(&self, mask: &RunLayers) -> PyResult<String> {
        let candidate = Candidate::of_mask(&mask.0);
        Ok(candidate.ok_or_else(|| wrong("a list of steps: a judge reads masks"))?.to_string())
    }

    fn __repr__(&self) -> String {
        format!("<spec_run.Judge on {} and {} positions>", self.positions, self.held_out)
    }
}

impl Judge {
    fn member(&self, name: &str, mask: &str, proof: &str, measured: Option<&str>) -> PyResult<Member> {
        let read = |e: serde_json::Error| wrong(format!("a proof or a measurement of another judge: {e}"));
        let proof: Proof = serde_json::from_str(proof).map_err(read)?;
        if proof.greedy_tokens.len() != self.draft_max {
            return Err(wrong("a proof for drafts of another length"));
        }
        let measured = measured.map(serde_json::from_str::<Measured>).transpose().map_err(read)?;
        Ok(Member { name: name.into(), candidate: self.candidate(mask)?, proof, measured })
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        drop(self.commands.get_mut().map(Option::take));
        if let Some(thread) = self.thread.get_mut().ok().and_then(Option::take) {
            Python::attach(|py| py.detach(|| drop(thread.join())));
        }
    }
}
