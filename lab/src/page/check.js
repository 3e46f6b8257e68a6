// Whether every chart shows something, for `lab/run --look`.
const charts = [...document.querySelectorAll("svg.chart")];
const empty = charts.filter((chart) => {
  const marks = [...chart.querySelectorAll(".mark")].filter((mark) => mark.getBBox().width > 0);
  return marks.length < 6 || marks.every((mark) => mark.getBoundingClientRect().height === 0);
});
document.body.dataset.height = document.documentElement.scrollHeight;
document.body.dataset.charts = charts.length;
document.body.dataset.empty = empty.map((chart) => chart.getAttribute("aria-label")).join(", ") || "none";
