// The errors along the kernels: a tooltip, and the arrow keys from mark to mark.

const errors = document.getElementById("accuracy-plot");
if (errors) {
  const marks = [...errors.querySelectorAll("a")];
  for (const mark of marks) {
    const title = mark.querySelector("title");
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const show = (event) => {
    const mark = event.target.closest("a");
    if (mark) showTip(mark, [mark.getAttribute("aria-label")]);
    else hideTip();
  };
  errors.addEventListener("pointerover", show);
  errors.addEventListener("pointerleave", hideTip);
  errors.addEventListener("focusin", show);
  errors.addEventListener("focusout", hideTip);
  errors.addEventListener("keydown", (event) => {
    const index = marks.indexOf(event.target.closest("a"));
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: marks.length - 1 }[
      event.key
    ];
    if (next === undefined || !marks[next]) return;
    event.preventDefault();
    marks[index].setAttribute("tabindex", "-1");
    marks[next].setAttribute("tabindex", "0");
    marks[next].focus();
  });
}
