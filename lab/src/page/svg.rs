//! What charts are drawn with: marks, axes with units, legends. Colours are classes of the page's style sheet.

/// A drawing of fixed width.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

pub(super) const WIDTH: f64 = 1_000.0;

/// The text of a document, not of its markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Svg {
    /// The document, which must show marks: the page checks itself.
    pub(super) fn end(self, height: f64, title: &str) -> String {
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{}</svg>\n",
            self.body
        )
    }

    /// The style of a picture that stands in no page.
    pub(super) fn style(&mut self, style: &str) {
        self.body += &format!("<style>{style}</style>\n");
    }

    /// A text that rises to the right.
    pub(super) fn slanted(&mut self, x: f64, y: f64, text: &str) {
        self.body +=
            &format!("<text transform=\"translate({x:.1} {y:.1}) rotate(-40)\">{}</text>\n", escape(text));
    }

    /// A text; its place is that of its baseline.
    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.body += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n", escape(text));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.body +=
            &format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>\n");
    }

    /// A bar that shows its value when it is pointed at.
    pub(super) fn bar(&mut self, x: f64, y: f64, size: (f64, f64), class: &str, tip: &str) {
        let (width, height) = size;
        self.body += &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" class=\"mark {class}\">\
             <title>{}</title></rect>\n",
            width.max(1.0),
            escape(tip)
        );
    }

    pub(super) fn dot(&mut self, x: f64, y: f64, class: &str, tip: &str) {
        self.body += &format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"mark {class}\"><title>{}</title></circle>\n",
            escape(tip)
        );
    }

    /// Boxes with words, from left to right.
    pub(super) fn legend(&mut self, x: f64, y: f64, entries: &[(&str, &str)]) {
        let mut x = x;
        for (class, words) in entries {
            self.bar(x, y - 9.0, (12.0, 10.0), class, words);
            self.text(x + 17.0, y, "small", words);
            x += 40.0 + 6.4 * words.chars().count() as f64;
        }
    }
}

/// A scale from 0, or logarithmic, with round steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    pub(super) fn linear(high: f64, from: f64, to: f64) -> Self {
        Self { low: 0.0, high: if high > 0.0 { high } else { 1.0 }, from, to, is_log: false }
    }

    /// From the power of ten below `low` to that above `high`.
    pub(super) fn log(low: f64, high: f64, from: f64, to: f64) -> Self {
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Self { low, high: high.max(low + 1.0), from, to, is_log: true }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(1e-9).log10() } else { value };
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }

    /// Values for lines across.
    pub(super) fn steps(&self) -> Vec<f64> {
        if self.is_log {
            return (self.low as i32..=self.high as i32).map(|power| 10_f64.powi(power)).collect();
        }
        let raw = self.high / 6.0;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= raw);
        let step = step.unwrap_or(power);
        (0..=(self.high / step) as usize).map(|number| number as f64 * step).collect()
    }
}

/// A number without needless digits.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.1 => format!("{value:.2}"),
        small if small < 10.0 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_within_the_scale() {
        assert_eq!(Scale::linear(11.0, 0.0, 1.0).steps(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::log(0.2, 70.0, 0.0, 1.0).steps(), [0.1, 1.0, 10.0, 100.0]);
    }
}
