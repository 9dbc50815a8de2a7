//! The chart: decisions per second over tasks, each peer a line, the yardstick at 1.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::lines::Run;
use super::names::{OVER_REDIS, OWN};

const SIZE: (u32, u32) = (960, 520);
const LEFT: i32 = 56;
const RIGHT: i32 = 700;
const TOP: i32 = 60;
const BOTTOM: i32 = 460;
/// The distance of two labels, in pixels.
const GAP: i32 = 18;

/// Colours that people with colour blindness can tell apart. The picture brings its own background.
const GROUND: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(45, 45, 48);
const FAINT: RGBColor = RGBColor(214, 214, 208);
const COLORS: [(&str, RGBColor); 10] = [
    ("evalsha", INK),
    (OWN, RGBColor(0, 114, 178)),
    ("sluice_hot", RGBColor(86, 180, 233)),
    ("tower_redis_cell", RGBColor(213, 94, 0)),
    ("tower_rate_limit_redis", RGBColor(0, 130, 95)),
    ("tower_rate_limit_fred", RGBColor(176, 100, 150)),
    ("tower_rate_limiter", RGBColor(160, 120, 0)),
    ("limitador", RGBColor(120, 94, 240)),
    ("bb8", RGBColor(110, 110, 116)),
    ("actix_limitation", RGBColor(140, 60, 40)),
];

pub(super) fn draw(path: &str, run: &Run) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&GROUND)?;
    let text = |size: u32, color: RGBColor, side: HPos| {
        ("sans-serif", size).into_font().color(&color).pos(Pos::new(side, VPos::Center))
    };
    let tasks = run.tasks();
    let lines: Vec<(&str, RGBColor, Vec<(usize, f64)>)> = COLORS
        .iter()
        .filter_map(|(name, color)| {
            let label = OVER_REDIS.iter().find(|one| one.name == *name)?.label;
            let points: Vec<_> = tasks
                .iter()
                .enumerate()
                .filter_map(|(place, tasks)| Some((place, run.figure(name, *tasks, "ratio")?)))
                .collect();
            (!points.is_empty()).then_some((label, *color, points))
        })
        .collect();
    let all = || lines.iter().flat_map(|(_, _, points)| points).map(|(_, ratio)| ratio.log2());
    let least = all().fold(0.0, f64::min).floor();
    let most = all().fold(0.0, f64::max).ceil();
    let down =
        |log: f64| BOTTOM - ((log - least) / (most - least) * f64::from(BOTTOM - TOP)) as i32;
    let across = |place: usize| {
        LEFT + 24 + place as i32 * (RIGHT - LEFT - 48) / (tasks.len() as i32 - 1).max(1)
    };

    let title = "Decisions per second over one Redis, divided by those of one EVALSHA each";
    root.draw_text(title, &text(17, INK, HPos::Left), (14, 24))?;
    for log in least as i32..=most as i32 {
        let y = down(f64::from(log));
        let color = if log == 0 { INK } else { FAINT };
        root.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], color))?;
        let ratio = if log < 0 { format!("1/{}", 1 << -log) } else { format!("{}", 1 << log) };
        root.draw_text(&ratio, &text(12, INK, HPos::Right), (LEFT - 8, y))?;
    }
    for (place, tasks) in tasks.iter().enumerate() {
        let unit = if *tasks == 1 { "task" } else { "tasks" };
        let at = (across(place), BOTTOM + 18);
        root.draw_text(&format!("{tasks} {unit}"), &text(12, INK, HPos::Center), at)?;
    }

    let mut labels = Vec::new();
    for (label, color, points) in &lines {
        let path: Vec<_> =
            points.iter().map(|(place, ratio)| (across(*place), down(ratio.log2()))).collect();
        let width = if label.starts_with("tower-sluice") { 3 } else { 2 };
        root.draw(&PathElement::new(path.clone(), color.stroke_width(width)))?;
        for at in &path {
            root.draw(&Circle::new(*at, 3, color.filled()))?;
        }
        let (_, last) = points[points.len() - 1];
        labels.push((path[path.len() - 1], format!("{label} {last:.2}"), *color));
    }
    // From top to bottom, and then up again where the last ones would leave the picture.
    labels.sort_by_key(|((_, y), _, _)| *y);
    let mut at: Vec<i32> = Vec::new();
    for ((_, y), _, _) in &labels {
        at.push(at.last().map_or(*y, |above| (*y).max(above + GAP)));
    }
    let mut floor = BOTTOM + GAP / 2;
    for y in at.iter_mut().rev() {
        *y = (*y).min(floor);
        floor = *y - GAP;
    }
    for (((x, y), label, color), at) in labels.iter().zip(at) {
        root.draw(&PathElement::new([(x + 6, *y), (RIGHT + 14, at)], color.stroke_width(1)))?;
        root.draw_text(label, &text(14, *color, HPos::Left), (RIGHT + 20, at))?;
    }
    let note =
        "More is better. benches/peers/README.md has the versions, the machine and the command.";
    root.draw_text(note, &text(12, INK, HPos::Left), (14, BOTTOM + 44))?;
    root.present()?;
    Ok(())
}
