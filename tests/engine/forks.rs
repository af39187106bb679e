//! Sequences that part from each other within a batch: each row has the bits that it has where its text is evaluated alone.

use spec_run::{
    Batch, Context,
    batch::{Fork, Resume, Row, SeqId},
};

use crate::common::{context, embedded_model, families};

const TEXT: [u32; 6] = [1, 403, 407, 261, 378, 596];

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

fn row(token: u32, pos: u32, seq: SeqId) -> Row {
    Row { token, pos, seq, logits: true }
}

/// The logits after the last of some tokens.
fn after(context: &mut Context, tokens: &[u32]) -> Vec<u32> {
    context.remove_all();
    context.decode(&Batch::prompt(tokens, 0, 0)).unwrap();
    bits(context.logits(0))
}

/// Behind the text: `a b` in its own sequence, `c d` and `e` in two that part behind `a`, and `f` in one that parts behind `c`.
fn tree(first: u32) -> Batch {
    let [a, b, c, d, e, f] = [10, 20, 30, 40, 50, 60];
    let rows = vec![
        row(a, first, 0),
        row(b, first + 1, 0),
        row(c, first + 1, 7),
        row(e, first + 1, 8),
        row(d, first + 2, 7),
        row(f, first + 2, 9),
    ];
    let forks = [(0, 7), (0, 8), (2, 9)].map(|(after, to)| Fork { after, to });
    Batch { rows, forks: forks.to_vec(), ..Batch::new() }
}

const PATHS: [&[u32]; 6] = [&[10], &[10, 20], &[10, 30], &[10, 50], &[10, 30, 40], &[10, 30, 60]];

#[test]
fn a_tree_of_rows_has_the_bits_of_its_paths() {
    let families = families::families().iter().filter(|family| !family.is_recurrent());
    let families = families.map(|family| (family.name.as_str(), family.model.clone()));
    let mut tried = 0;
    for (name, model) in std::iter::once(("embedded", embedded_model())).chain(families) {
        for max_rows in [64, 4] {
            let mut context = context(&model, |c| (c.n_ctx, c.n_ubatch, c.threads) = (64, max_rows, 2));
            let text: Vec<u32> = TEXT.iter().map(|token| token % model.n_vocab() as u32).collect();
            let expected = PATHS.map(|path| after(&mut context, &[&text, path].concat()));
            let next = expected_next(&mut context, &text);
            context.remove_all();
            context.decode(&Batch::prompt(&text, 0, 0)).unwrap();
            context.decode(&tree(text.len() as u32)).unwrap();
            for (i, expected) in expected.iter().enumerate() {
                assert!(bits(context.logits(i)) == *expected, "{name}, row {i}, {max_rows} rows at once");
            }
            // One of them takes the text's place, and goes on.
            assert_eq!([0, 7, 8, 9].map(|seq| context.kv().len(seq)), [8, 9, 8, 9]);
            context.fork(7, 0);
            [7, 8, 9].into_iter().for_each(|seq| context.remove(seq));
            assert_eq!(context.kv().free_cells(), context.kv().capacity() - 9);
            context.decode(&Batch::prompt(&[11], 9, 0)).unwrap();
            assert!(bits(context.logits(0)) == next, "{name}, the next token");
            tried += 1;
        }
    }
    assert!(tried >= 2);
}

fn expected_next(context: &mut Context, text: &[u32]) -> Vec<u32> {
    after(context, &[text, &[10, 30, 40, 11]].concat())
}

#[test]
fn forks_that_cannot_be_are_one_line_and_change_nothing() {
    let model = embedded_model();
    let mut context = context(&model, |c| c.n_ctx = 16);
    context.decode(&Batch::prompt(&TEXT, 0, 0)).unwrap();
    context.decode(&Batch::prompt(&TEXT[..2], 0, 5)).unwrap();
    let good = tree(6);
    let with = |forks: &[(usize, SeqId)]| {
        let forks = forks.iter().map(|&(after, to)| Fork { after, to }).collect();
        Batch { forks, ..good.clone() }
    };
    let resume = Some(Resume { layer: 2, hidden: vec![0.0; 6 * 288] });
    for (batch, what) in [
        (with(&[(6, 7)]), "sequence 7 parts after row 6 of 6"),
        (with(&[(0, 5)]), "it has to be empty before"),
        (with(&[(0, 7), (0, 7)]), "it has to be empty before"),
        (with(&[(0, 8), (2, 7)]), "it has to be empty before"),
        (with(&[(1, 7), (1, 8)]), "its rows come behind that one"),
        (with(&[(2, 9), (0, 7)]), "sort the forks"),
        (Batch { resume, ..good.clone() }, "new rows only"),
        // Nine cells are free.
        (
            Batch {
                rows: [&good.rows[..], &[row(1, 8, 0), row(1, 9, 0), row(1, 10, 0)]].concat(),
                ..good.clone()
            },
            "the context is full",
        ),
    ] {
        let error = context.decode(&batch).unwrap_err().to_string();
        assert!(error.contains(what) && !error.contains('\n'), "{what}: {error}");
        assert_eq!([0, 5, 7, 8, 9].map(|seq| context.kv().len(seq)), [6, 2, 0, 0, 0], "{what}");
    }
    context.decode(&good).unwrap();
}
