//! The cost of probing against the number of workers, as SVG: what a straight line through the origin is, is linear.

use std::fmt::Write;

use crate::support::figures::Report;
use crate::{CPU, KINDS, row, support, wire};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 3] = ["#c0392b", "#2471a3", "#1e8449"];

struct Line {
    name: String,
    colour: &'static str,
    dashed: bool,
    /// Workers, and milliseconds of processor time each second.
    points: Vec<(f64, f64)>,
}

/// Writes `target/bench/network.svg`.
pub(crate) fn write(report: &Report, sizes: &[usize]) {
    let line = |handler: &str, colour, kind: &str| Line {
        name: format!("{handler}, {kind}"),
        colour,
        dashed: kind == KINDS[0],
        points: sizes
            .iter()
            .map(|n| {
                (
                    *n as f64,
                    report.median(&row(handler, *n, kind, CPU)) * *n as f64,
                )
            })
            .collect(),
    };
    let of_handler = |(handler, colour)| KINDS.map(|kind| line(handler, colour, kind));
    let lines: Vec<Line> = wire::HANDLERS
        .into_iter()
        .zip(COLOURS)
        .flat_map(of_handler)
        .collect();
    std::fs::write(support::out_dir().join("network.svg"), svg(&lines)).unwrap();
}

fn svg(lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|l| &l.points);
    let (right, top) = (ceiling(all().map(|p| p.0)), ceiling(all().map(|p| p.1)));
    let x = |v: f64| LEFT + v / right * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - v / top * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    out.push_str("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    text(
        &mut out,
        LEFT,
        20.0,
        "start",
        "Processor time of network probes, one a second for each worker",
    );
    for n in 0..=5 {
        let (across, up) = (right * f64::from(n) / 5.0, top * f64::from(n) / 5.0);
        let grid = |out: &mut String, x1, y1, x2, y2| {
            let _ = writeln!(
                out,
                "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
            );
        };
        grid(&mut out, x(across), y(0.0), x(across), y(top));
        grid(&mut out, x(0.0), y(up), x(right), y(up));
        text(
            &mut out,
            x(across),
            HEIGHT - BOTTOM + 18.0,
            "middle",
            &format!("{across:.0}"),
        );
        text(
            &mut out,
            LEFT - 8.0,
            y(up) + 4.0,
            "end",
            &format!("{up:.0}"),
        );
    }
    text(&mut out, x(right / 2.0), HEIGHT - 12.0, "middle", "workers");
    text(
        &mut out,
        8.0,
        TOP - 8.0,
        "start",
        "ms of processor time a second",
    );
    for line in lines {
        let dash = if line.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(n, ms)| format!("{:.1},{:.1}", x(*n), y(*ms)))
            .collect();
        let colour = line.colour;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            points.join(" ")
        );
    }
    legend(&mut out, lines);
    out + "</svg>\n"
}

/// In the order of the lines' ends, so that each name is near its own.
fn legend(out: &mut String, lines: &[Line]) {
    let mut sorted: Vec<&Line> = lines.iter().collect();
    let end = |l: &Line| l.points.last().map_or(0.0, |p| p.1);
    sorted.sort_by(|a, b| end(b).total_cmp(&end(a)));
    for (n, line) in sorted.iter().enumerate() {
        let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 20.0 * n as f64 + 10.0);
        let dash = if line.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{}\" stroke-width=\"2\"{dash}/>",
            x + 24.0,
            line.colour
        );
        text(out, x + 30.0, y + 4.0, "start", &line.name);
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// The next round number.
fn ceiling(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.fold(1.0, f64::max);
    let unit = 10_f64.powf(largest.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .into_iter()
        .map(|s| s * unit)
        .find(|v| *v >= largest)
        .unwrap_or(largest)
}
