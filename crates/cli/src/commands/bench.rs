//! `bench`: what sandboxes take on this host, seen from a client.

use std::time::{Duration, Instant};

use clap::Args;
use reqwest::{Method, header};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, sandbox};
use crate::{
    client::{Client, escape},
    failure::Failure,
    numbers,
    wire::Sandbox,
};

/// Bytes of the file that goes up and down.
const FILE_BYTES: usize = 64 << 20;
/// Calls made before any is measured, so that connections and caches are warm.
const WARM_UP: usize = 2;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Times that each measure is taken
    #[arg(short = 'n', long, default_value_t = 50, value_parser = numbers::whole(1..=10_000_u32))]
    rounds: u32,
    /// Template to measure with
    #[arg(short, long, value_name = "NAME", default_value = "code-interpreter")]
    template: String,
}

/// One measure. The names and fields are those of `bench/results/latest.json`.
#[derive(Debug, Serialize)]
struct Measure {
    name: &'static str,
    unit: &'static str,
    n: usize,
    p50: f64,
    p90: f64,
    p99: f64,
    raw: Vec<f64>,
}

impl Measure {
    fn of(name: &'static str, unit: &'static str, mut raw: Vec<f64>) -> Self {
        raw.sort_by(f64::total_cmp);
        Self {
            name,
            unit,
            n: raw.len(),
            p50: percentile(&raw, 50),
            p90: percentile(&raw, 90),
            p99: percentile(&raw, 99),
            raw,
        }
    }
}

/// The smallest value that so many percent of the sorted values do not pass (nearest rank).
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

impl BenchArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let bench = Bench {
            client: &client,
            context,
            rounds: self.rounds as usize,
            template: &self.template,
        };
        let measures = bench.all().await?;
        if context.screen.json {
            return context.screen.json(&json!({ "measures": measures }));
        }
        let rows: Vec<_> = measures
            .iter()
            .map(|measure| {
                let figures = [measure.p50, measure.p90, measure.p99].map(|figure| format!("{figure:.1}"));
                let mut row = vec![measure.name.to_owned(), measure.unit.to_owned(), measure.n.to_string()];
                row.extend(figures);
                row
            })
            .collect();
        context
            .screen
            .table(&["MEASURE", "UNIT", "N", "P50", "P90", "P99"], &rows)
    }
}

struct Bench<'a> {
    client: &'a Client,
    context: &'a Context,
    rounds: usize,
    template: &'a str,
}

impl Bench<'_> {
    async fn all(&self) -> Result<Vec<Measure>, Failure> {
        let mut measures = vec![self.creates().await?];
        let id = self.create().await?;
        let inside = self.inside(&id).await;
        sandbox::remove(self.client, &id).await?;
        measures.extend(inside?);
        Ok(measures)
    }

    async fn create(&self) -> Result<String, Failure> {
        let body = json!({ "template": self.template, "ttl_seconds": 600 });
        let created: Sandbox = self.client.post("/v1/sandboxes", &body).await?;
        Ok(created.id)
    }

    /// Each sandbox is removed before the next is made; only the create is measured.
    async fn creates(&self) -> Result<Measure, Failure> {
        let bar = self.context.screen.spinner("create");
        let mut taken = Vec::with_capacity(self.rounds);
        for round in 0..self.rounds + WARM_UP {
            let began = Instant::now();
            let id = self.create().await?;
            if round >= WARM_UP {
                taken.push(millis(began.elapsed()));
            }
            sandbox::remove(self.client, &id).await?;
        }
        bar.finish_and_clear();
        Ok(Measure::of("foundation.create", "ms", taken))
    }

    async fn inside(&self, id: &str) -> Result<Vec<Measure>, Failure> {
        let sandbox = format!("/v1/sandboxes/{}", escape(id));
        let sessions = format!("{sandbox}/repl/sessions");
        let context: Value = self.client.post(&sessions, &json!({ "language": "python" })).await?;
        let run = format!("{sessions}/{}/run", text(&context, "id")?);
        Ok(vec![
            self.posts(
                "foundation.exec_true",
                &format!("{sandbox}/exec"),
                &json!({ "cmd": "true" }),
            )
            .await?,
            self.posts("foundation.cell_warm", &run, &json!({ "code": "1+1" }))
                .await?,
            self.contexts(&sessions).await?,
            self.uploads(&sandbox).await?,
            self.downloads(&sandbox).await?,
        ])
    }

    /// The same call again and again.
    async fn posts(&self, name: &'static str, path: &str, body: &Value) -> Result<Measure, Failure> {
        let bar = self.context.screen.spinner(name);
        let mut taken = Vec::with_capacity(self.rounds);
        for round in 0..self.rounds + WARM_UP {
            let began = Instant::now();
            let _: Value = self.client.post(path, body).await?;
            if round >= WARM_UP {
                taken.push(millis(began.elapsed()));
            }
        }
        bar.finish_and_clear();
        Ok(Measure::of(name, "ms", taken))
    }

    async fn contexts(&self, sessions: &str) -> Result<Measure, Failure> {
        let mut taken = Vec::with_capacity(self.rounds);
        for _ in 0..self.rounds {
            let began = Instant::now();
            let made: Value = self.client.post(sessions, &json!({ "language": "python" })).await?;
            taken.push(millis(began.elapsed()));
            self.client
                .delete(&format!("{sessions}/{}", text(&made, "id")?))
                .await?;
        }
        Ok(Measure::of("foundation.context_create", "ms", taken))
    }

    async fn uploads(&self, sandbox: &str) -> Result<Measure, Failure> {
        let bytes = bytes::Bytes::from(vec![0x5a; FILE_BYTES]);
        let mut rates = Vec::new();
        for _ in 0..self.file_rounds() {
            let request = self
                .client
                .request(Method::PUT, &format!("{sandbox}/fs?path=/tmp/bench"))
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .body(bytes.clone());
            let began = Instant::now();
            self.client.send(request).await?;
            rates.push(megabytes_per_second(began.elapsed()));
        }
        Ok(Measure::of("foundation.file_up", "MB/s", rates))
    }

    async fn downloads(&self, sandbox: &str) -> Result<Measure, Failure> {
        let mut rates = Vec::new();
        for _ in 0..self.file_rounds() {
            let request = self
                .client
                .request(Method::GET, &format!("{sandbox}/fs?path=/tmp/bench"));
            let began = Instant::now();
            let mut response = self.client.send(request).await?;
            let mut count = 0;
            while let Some(chunk) = response.chunk().await.map_err(|error| self.client.broken(&error))? {
                count += chunk.len();
            }
            rates.push(megabytes_per_second(began.elapsed()));
            if count != FILE_BYTES {
                return Err(Failure::local(format!(
                    "the file came back with {count} bytes instead of {FILE_BYTES}"
                )));
            }
        }
        Ok(Measure::of("foundation.file_down", "MB/s", rates))
    }

    /// 64 MiB a time add up; a fifth of the rounds is enough to see the spread.
    fn file_rounds(&self) -> usize {
        self.rounds.div_ceil(5)
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Failure> {
    value[key]
        .as_str()
        .ok_or_else(|| Failure::local(format!("the server's answer has no {key}")))
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[allow(clippy::cast_precision_loss)] // 64 MiB is exact in a double.
fn megabytes_per_second(took: Duration) -> f64 {
    FILE_BYTES as f64 / 1e6 / took.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(
            [50, 90, 99].map(|percent| percentile(&sorted, percent)),
            [5.0, 9.0, 10.0]
        );
        assert_eq!(percentile(&[7.0], 50), 7.0);
    }
}
