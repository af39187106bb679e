use std::sync::Arc;
use spec_run::*;
fn main() {
    let f = std::env::args().nth(1).unwrap();
    let t = std::env::args().nth(2).map_or(1, |t| t.parse().unwrap());
    let isa = std::env::args().nth(3).map(|t| t.parse().unwrap());
    let r: serde_json::Value = serde_json::from_str(&std::fs::read_to_string("/work/shared/fixtures/reference.json").unwrap()).unwrap();
    let m = Arc::new(Model::load(Arc::new(Gguf::open(format!("/work/shared/fixtures/models/{f}").as_ref()).unwrap())).unwrap());
    let mut c = Context::new(m.clone(), &ContextConfig { n_ctx: 512, threads: t, isa, key_type: if std::env::var("KV").is_ok() { spec_run::context::KvType::F32 } else { spec_run::context::KvType::F16 }, value_type: if std::env::var("VV").is_ok() { spec_run::context::KvType::F32 } else { spec_run::context::KvType::F16 }, ..Default::default() }).unwrap();
    println!("{}", c.describe());
    for g in r["greedy"].as_array().unwrap() { if g["model"] != f.as_str() { continue }
        let ids: Vec<u32> = g["prompt_ids"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect();
        let want: Vec<u32> = g["tokens"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect();
        c.remove(0);
        c.decode(&Batch::prompt(&ids, 0, 0)).unwrap();
        let mut bad = 0; let mut worst = 0.0f64; let n = ids.len();
        let s = std::time::Instant::now();
        for (i, &w) in want.iter().enumerate() {
            let l = c.logits(0);
            let best = (0..l.len()).max_by(|&a, &b| l[a].total_cmp(&l[b])).unwrap();
            if best as u32 != w { bad += 1; println!("at {i}: {best} want {w}: {} {}", l[best], l[w as usize]); }
            let mx = l[best] as f64; let lse = mx + l.iter().map(|&x| (x as f64 - mx).exp()).sum::<f64>().ln();
            if let Some(t) = g["top"].get(i) { for p in t.as_array().unwrap() { let d = (l[p[0].as_u64().unwrap() as usize] as f64 - lse - p[1].as_f64().unwrap()).abs(); worst = worst.max(d); } }
            c.decode(&Batch::prompt(&[w], (n + i) as u32, 0)).unwrap();
        }
        println!("{} differ, worst logprob {worst:.5}, {:.1} tok/s", bad, want.len() as f64 / s.elapsed().as_secs_f64());
    }
}
