//! The chart of `growth`: one panel for each thing that grows. Its cases stand at equal distances.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 560);

/// The chart brings its own background, so that it reads in light and dark pages alike.
const GROUND: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(45, 45, 48);
const FAINT: RGBColor = RGBColor(214, 214, 208);
const LINE: RGBColor = RGBColor(0, 114, 178);

/// One panel of the chart: what grows, and the points.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) points: Vec<(usize, f64)>,
}

pub(crate) fn draw(path: &str, panels: &[Panel]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&GROUND)?;
    let areas = root.split_evenly((2, 3));
    for (panel, area) in panels.iter().zip(&areas) {
        draw_panel(panel, area)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(
    panel: &Panel,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let small = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let last = panel.points.len() as f64 - 0.7;
    let most = panel.points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(panel.title, small(15))
        .x_label_area_size(24)
        .y_label_area_size(52)
        .build_cartesian_2d(-0.3..last, 0.0..most * 1.1)?;
    let label = |at: &f64| {
        let place = at.round();
        let point = panel.points.get(place as usize).filter(|_| (at - place).abs() < 0.01);
        point.map_or_else(String::new, |(at, _)| short(*at as f64))
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_labels(2 * panel.points.len())
        .x_label_formatter(&label)
        .y_label_formatter(&|value| short(*value))
        .y_desc(panel.unit)
        .label_style(small(11))
        .draw()?;
    let points =
        || panel.points.iter().enumerate().map(|(place, (_, value))| (place as f64, *value));
    let line = PathElement::new(points().collect::<Vec<_>>(), LINE.stroke_width(2));
    chart.draw_series([line])?;
    chart.draw_series(points().map(|point| Circle::new(point, 3, LINE.filled())))?;
    Ok(())
}

/// A number in few characters.
fn short(number: f64) -> String {
    match number {
        _ if number >= 1e6 => format!("{}M", number / 1e6),
        _ if number >= 1e4 => format!("{}k", number / 1e3),
        _ => format!("{number}"),
    }
}
