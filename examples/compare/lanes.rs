//! A chart of lanes: each has bars of requests in the order of their arrival, by verdict.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 960;
const LEFT: i32 = 244;
const RIGHT: i32 = 932;
const TOP: i32 = 62;
const LANE: i32 = 64;

/// The picture brings its own background.
const GROUND: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(45, 45, 48);
const FAINT: RGBColor = RGBColor(214, 214, 208);

/// What all lanes share.
pub(crate) struct Chart<'a, const N: usize> {
    pub(crate) title: &'a str,
    /// Each verdict with its colour. People with colour blindness can tell them apart.
    pub(crate) verdicts: &'a [(&'a str, RGBColor); N],
    /// The length of the chart and the width of a bar, in ms.
    pub(crate) end: u64,
    pub(crate) bar: u64,
    /// Times with a ground of their own and a name, in ms.
    pub(crate) spans: &'a [(u64, u64, &'a str)],
    /// A line below the chart.
    pub(crate) note: String,
}

/// The bars of one limiter: how many requests of each bar got each verdict.
pub(crate) struct Lane<const N: usize> {
    pub(crate) name: &'static str,
    pub(crate) note: String,
    pub(crate) bars: Vec<[i32; N]>,
}

impl<const N: usize> Chart<'_, N> {
    pub(crate) fn draw(&self, path: &str, lanes: &[Lane<N>]) -> Result<(), Box<dyn Error>> {
        // A line for the names of spans.
        let top = TOP + if self.spans.is_empty() { 0 } else { 18 };
        let bottom = top + LANE * lanes.len() as i32;
        let root = SVGBackend::new(path, (WIDTH, bottom as u32 + 62)).into_drawing_area();
        root.fill(&GROUND)?;
        let text = |size: u32, color: RGBColor| ("sans-serif", size).into_font().color(&color);
        let left = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Left, VPos::Center));
        let right = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Right, VPos::Center));
        let middle = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Center, VPos::Center));

        root.draw_text(self.title, &left(text(17, INK)), (14, 20))?;
        let mut x = LEFT;
        for (verdict, color) in self.verdicts {
            root.draw(&Rectangle::new([(x, 38), (x + 12, 50)], color.filled()))?;
            root.draw_text(verdict, &left(text(13, INK)), (x + 18, 45))?;
            x += 40 + 7 * verdict.len() as i32;
        }

        let across = |ms: u64| LEFT + (ms as i32) * (RIGHT - LEFT) / self.end as i32;
        for (from, to, name) in self.spans {
            let (from, to) = (across(*from), across(*to));
            root.draw(&Rectangle::new([(from, top), (to, bottom)], FAINT.mix(0.5).filled()))?;
            root.draw_text(name, &middle(text(13, INK)), ((from + to) / 2, top - 9))?;
        }
        for second in 0..=self.end / 1_000 {
            let x = across(second * 1_000);
            root.draw(&PathElement::new([(x, top), (x, bottom)], FAINT))?;
            root.draw_text(&format!("{second} s"), &middle(text(12, INK)), (x, bottom + 14))?;
        }
        let bars = lanes.iter().flat_map(|lane| &lane.bars);
        let most = bars.map(|bar| bar.iter().sum::<i32>()).max();
        let unit = f64::from(LANE - 14) / f64::from(most.unwrap_or(1));
        for (place, lane) in lanes.iter().enumerate() {
            let floor = top + LANE * (place as i32 + 1);
            root.draw(&PathElement::new([(14, floor), (RIGHT, floor)], INK))?;
            root.draw_text(lane.name, &right(text(14, INK)), (LEFT - 12, floor - 38))?;
            root.draw_text(&lane.note, &right(text(12, INK)), (LEFT - 12, floor - 18))?;
            for (number, bar) in lane.bars.iter().enumerate() {
                let at = number as u64 * self.bar;
                let (from, to) = (across(at), across(at + self.bar) - 1);
                let mut below = 0;
                for (count, (_, color)) in bar.iter().zip(self.verdicts) {
                    let height = |units: i32| floor - (f64::from(units) * unit).round() as i32;
                    if *count > 0 {
                        let (low, high) = (height(below), height(below + count));
                        root.draw(&Rectangle::new([(from, high), (to, low)], color.filled()))?;
                    }
                    below += count;
                }
            }
        }
        root.draw_text(&self.note, &left(text(12, INK)), (14, bottom + 40))?;
        root.present()?;
        Ok(())
    }
}
