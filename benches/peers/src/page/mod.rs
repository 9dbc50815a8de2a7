//! The page and the chart, drawn from the lines of one or two runs.

mod chart;
mod lines;
mod names;
mod tables;

use std::fs;

use self::lines::Run;

const BEGIN: &str = "<!-- Drawn by run.sh from results.txt. -->\n";
const END: &str = "<!-- The end of what run.sh draws. -->\n";

/// Replaces the drawn part of the page, and the chart.
pub(crate) fn draw(lines: &str, page: &str, picture: &str) {
    let runs = Run::read_all(&fs::read_to_string(lines).expect("lines"));
    let text = fs::read_to_string(page).expect("a page");
    let (before, rest) = text.split_once(BEGIN).expect("where the drawn part begins");
    let (_, after) = rest.split_once(END).expect("where the drawn part ends");
    let drawn = tables::all(&runs);
    fs::write(page, format!("{before}{BEGIN}\n{drawn}\n{END}{after}")).expect("a page");
    chart::draw(picture, &runs[0]).expect("a chart");
}
