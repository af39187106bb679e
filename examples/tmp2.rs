use std::sync::Arc;
use spec_run::*;
fn main() {
    let r: serde_json::Value = serde_json::from_str(&std::fs::read_to_string("/tmp/ref_out.json").unwrap()).unwrap();
    let rf: serde_json::Value = serde_json::from_str(&std::fs::read_to_string("/work/shared/fixtures/reference.json").unwrap()).unwrap();
    for f in ["stories13m-f16.gguf", "stories260K.gguf"] { 
    let m = Arc::new(Model::load(Arc::new(Gguf::open(format!("/work/shared/fixtures/models/{f}").as_ref()).unwrap())).unwrap());
    for (kt, kv) in [(0, context::KvType::F32), (1, context::KvType::F16)] { for fa in [0, 1] {
    let mut c = Context::new(m.clone(), &ContextConfig { n_ctx: 512, threads: 2, key_type: kv, value_type: kv, ..Default::default() }).unwrap();
    let (mut worst, mut worst5) = (0.0f64, 0.0f64);
    for g in rf["greedy"].as_array().unwrap() { if g["model"] != f { continue }
        let want = r[format!("{f} {fa} {kt} {}", g["prompt"].as_str().unwrap())].as_array().unwrap();
        let ids: Vec<u32> = g["prompt_ids"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect();
        c.remove(0);
        c.decode(&Batch::prompt(&ids, 0, 0)).unwrap();
        for (i, row) in want.iter().enumerate() {
            let l = c.logits(0);
            let mx = l.iter().fold(-1e9f64, |a, &b| a.max(b as f64)); let lse = mx + l.iter().map(|&x| (x as f64 - mx).exp()).sum::<f64>().ln();
            for (t, w) in row.as_array().unwrap().iter().enumerate() { worst = worst.max((l[t] as f64 - lse - w.as_f64().unwrap()).abs()); }
            for p in g["top"][i].as_array().unwrap() { let t = p[0].as_u64().unwrap() as usize; worst5 = worst5.max((l[t] as f64 - lse - row[t].as_f64().unwrap()).abs()); }
            let t = g["tokens"][i].as_u64().unwrap() as u32;
            c.decode(&Batch::prompt(&[t], (ids.len() + i) as u32, 0)).unwrap();
        } }
        println!("{f} {kv} vs llama fa={fa}: all {worst:.6} top5 {worst5:.6}");
    } } }
}
