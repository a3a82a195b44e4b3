// The budget of any size. The sentences are those of report/html/budget.py, which the tests compare.

const kib = document.getElementById("budget-kib");
if (kib) {
  const { model, summary, memory, sections, tensors, kernels } = facts();
  const scale = Number(document.getElementById("budget-stacks").dataset.scale);
  const KIB = 1024;
  const MOST_RUNS = 12;
  const several = (number, unit) => `${grouped(number)} ${unit}${number === 1 ? "" : "s"}`;
  const kernelName = (number) => kernelText(kernels[number]);
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const tensorOf = byNumber(tensors);
  const built = sections.filter((section) => "text" in section);
  const others = built.filter((section) => section.target !== "host");
  const measured = others.length ? others : built;
  const constants = tensors.filter((tensor) => tensor.place === "constant");
  const constantReaders = [...new Set(constants.flatMap((tensor) => tensor.readers))];
  const ramParts = ["workspace", "inputs", "outputs"].map((name) => [
    name,
    summary[`${name}_bytes`],
  ]);
  if (summary.stack?.bytes !== undefined) ramParts.push(["stack", summary.stack.bytes]);
  const ramBytes = sum(ramParts.map(([, bytes]) => bytes));

  /** 512 bytes, 1.5 KiB, 130 KiB. */
  function amount(size) {
    if (size < KIB) return several(size, "byte");
    const tenths = Math.floor((size * 10 + KIB / 2) / KIB);
    if (tenths >= 1000) return `${grouped(Math.floor((size + KIB / 2) / KIB))} KiB`;
    return tenths % 10 === 0 ? `${tenths / 10} KiB` : `${(tenths / 10).toFixed(1)} KiB`;
  }

  /** 3, 4, 7 to 9 and 12 more. */
  function listed(numbers) {
    const runs = [];
    for (const number of numbers) {
      const last = runs[runs.length - 1];
      if (last && number === last[1] + 1) last[1] = number;
      else runs.push([number, number]);
    }
    const texts = runs
      .slice(0, MOST_RUNS)
      .map(([first, last]) =>
        first === last
          ? `${first}`
          : last === first + 1
            ? `${first}, ${last}`
            : `${first} to ${last}`,
      );
    const more = sum(runs.slice(MOST_RUNS).map(([first, last]) => last - first + 1));
    return texts.join(", ") + (more ? ` and ${grouped(more)} more` : "");
  }

  /** Control characters of a name as escapes, as the page has them everywhere. */
  function printable(text) {
    return text.replace(/[\p{C}\p{Zl}\p{Zp}\p{Zs}]/gu, (character) => {
      const code = character.codePointAt(0);
      const hex = (digits, number = code) => number.toString(16).padStart(digits, "0");
      if (" \n".includes(character)) return character;
      if ("\t\r".includes(character)) return character === "\t" ? "\\t" : "\\r";
      if (code >= 0xdc80 && code <= 0xdcff) return `\\x${hex(2, code - 0xdc00)}`;
      return code < 0x100 ? `\\x${hex(2)}` : code < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
    });
  }

  const overKernels = (size) =>
    memory.live.flatMap((live, number) => (live > size ? [number] : []));
  const larger = (size) =>
    tensors
      .filter((tensor) => tensor.place === "workspace" && tensor.bytes > size)
      .sort((a, b) => b.bytes - a.bytes || a.number - b.number);

  function ramSentence(size) {
    const inside = `${amount(size)} of RAM: `;
    const workspace = summary.workspace_bytes;
    const names = ramParts.map(([name]) => name);
    const all = `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
    if (ramBytes <= size) {
      return (
        `${inside}a run fits. ${all[0].toUpperCase()}${all.slice(1)} take ` +
        `${grouped(ramBytes)} bytes; ${grouped(size - ramBytes)} are left.`
      );
    }
    if (workspace <= size) {
      return (
        `${inside}the workspace fits (${grouped(workspace)} bytes), but ${all} together are ` +
        `${grouped(ramBytes)} bytes, ${grouped(ramBytes - size)} too many. Inputs and outputs are ` +
        "memory of the caller: they would have to be smaller, or lie elsewhere."
      );
    }
    return (
      `${inside}the workspace of ${grouped(workspace)} bytes is ` +
      `${grouped(workspace - size)} too large. ` +
      othersAlone(size) +
      mustShrink(size)
    );
  }

  function othersAlone(size) {
    const parts = ramParts.slice(1).filter(([, bytes]) => bytes > size);
    const verb = (name) => (name === "stack" ? "takes" : "take");
    return parts
      .map(([name, bytes]) => `The ${name} alone ${verb(name)} ${grouped(bytes)} bytes. `)
      .join("");
  }

  function mustShrink(size) {
    const over = overKernels(size);
    if (!over.length) {
      return (
        `No more than ${grouped(summary.workspace_bound_bytes)} bytes are live at once, so the ` +
        "tensors would fit: it is the gaps between them that would have to go."
      );
    }
    let text =
      `No plan of these kernels can help: more than that is live at ${grouped(over.length)} of ` +
      `${several(memory.live.length, "kernel")} (${listed(over)}). `;
    const alone = larger(size).length;
    if (alone) {
      const verb = alone === 1 ? "is larger by itself" : "are larger by themselves";
      text += `${several(alone, "tensor")} ${verb}. `;
    }
    const { peak } = memory;
    const named = peak.tensors
      .slice(0, 2)
      .map((number) => tensorOf.get(number))
      .map(
        (tensor) =>
          `${printable(shortened(tensor.label))} (${typeText(tensor)}, ${several(tensor.bytes, "byte")}${paddingText(tensor)})`,
      )
      .join(" and ");
    return (
      `${text}At kernel ${peak.kernel} (${kernelName(peak.kernel)}), where most is live, ` +
      `${grouped(peak.bytes - size)} bytes have to go; the largest there: ${named}.`
    );
  }

  /** The constants that fit, in the order of the kernels that first read them. */
  function begun(size) {
    const first = (tensor) => Math.min(...tensor.readers); // of none: after all others
    const ordered = [...constants].sort((a, b) =>
      first(a) === first(b) ? a.number - b.number : first(a) - first(b),
    );
    let [number, bytes] = [0, 0];
    while (number < ordered.length && bytes + ordered[number].bytes <= size) {
      bytes += ordered[number].bytes;
      number += 1;
    }
    const stop = number < ordered.length ? first(ordered[number]) : Infinity;
    return { number, bytes, kernels: constantReaders.filter((kernel) => kernel < stop).length };
  }

  const flashBytes = (section) => section.text + section.rodata + section.data;

  function flashSentence(size) {
    const inside = `${amount(size)} of flash: `;
    const texts = measured.map((section) => {
      const total = flashBytes(section);
      const fits =
        total <= size
          ? ` and fits, ${grouped(size - total)} are left`
          : `, ${grouped(total - size)} too many`;
      return `${section.target} takes ${grouped(total)} bytes${fits}`;
    });
    const code = texts.length ? `${texts.join("; ")}. ` : "no code was measured. ";
    if (!constants.length) return `${inside}${code}There are no constants.`;
    const total = summary.constants_bytes;
    const alone =
      `The constants alone, as packed for ${printable(model.target)} ` +
      `(${grouped(total)} bytes),`;
    if (total <= size) return `${inside}${code}${alone} fit.`;
    const part = begun(size);
    return (
      `${inside}${code}${alone} do not fit: in the order of ` +
      `the kernels, the first ${grouped(part.number)} of ${grouped(constants.length)} would ` +
      `(${grouped(part.bytes)} bytes), all that the first ${grouped(part.kernels)} of ` +
      `${several(constantReaders.length, "kernel")} with constants need.`
    );
  }

  const MOST_LISTED = 200;
  function links(items, text) {
    const list = items.slice(0, MOST_LISTED).flatMap((item, i) => [i ? ", " : "", text(item)]);
    if (items.length > MOST_LISTED) list.push(` and ${grouped(items.length - MOST_LISTED)} more`);
    return list;
  }

  /** Which kernels and tensors are too large, as links. */
  function showOver(size) {
    const over = overKernels(size);
    const alone = larger(size);
    const title = (what, number, text) => {
      const summary = document.getElementById(`budget-${what}-title`);
      summary.textContent = `${several(number, what.slice(0, -1))} ${text} ${amount(size)}`;
      summary.parentElement.hidden = !number;
    };
    title("kernels", over.length, "with more live than");
    title("tensors", alone.length, "larger by themselves than");
    document
      .getElementById("budget-kernels")
      .replaceChildren(
        ...links(over, (number) =>
          make("a", { href: `#kernel-${number}` }, `${number} ${kernelName(number)}`),
        ),
      );
    document
      .getElementById("budget-tensors")
      .replaceChildren(
        ...links(alone, (tensor) =>
          make(
            "a",
            { href: `#tensor-${tensor.number}` },
            make("bdi", { title: tensor.label }, shortened(tensor.label)),
            ` ${amount(tensor.bytes)}`,
          ),
        ),
      );
  }

  const WANTED = "Give a size in KiB: a number greater than 0.";

  function answer() {
    const chosen = Number(kib.value);
    const size = Math.round(chosen * KIB);
    const valid = size > 0 && Number.isFinite(size);
    kib.setAttribute("aria-invalid", String(!valid));
    document.getElementById("budget-wanted").textContent = valid ? "" : WANTED;
    for (const answered of document.querySelectorAll(".budget-answer"))
      answered.toggleAttribute("hidden", !valid); // lines of a drawing have no such property
    choose(valid ? chosen : null);
    if (valid) tell(size);
    dispatchEvent(
      new CustomEvent("budget", { detail: valid ? { bytes: size, text: amount(size) } : null }),
    );
  }

  /** Marks the row and the button of a usual size. */
  function choose(chosen) {
    for (const row of document.querySelectorAll(".budget-table tr[data-budget]")) {
      row.classList.toggle("budget-chosen", Number(row.dataset.budget) === chosen);
    }
    for (const button of document.querySelectorAll(".budget-tools button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.budget) === chosen));
    }
  }

  function tell(size) {
    document.getElementById("budget-ram").textContent = ramSentence(size);
    document.getElementById("budget-flash").textContent = flashSentence(size);
    document.getElementById("budget-at").textContent = amount(size);
    for (const line of document.querySelectorAll(".budget-line")) {
      const at = `${Math.min(100, (100 * size) / scale)}%`;
      line.setAttribute("x1", at);
      line.setAttribute("x2", at);
    }
    showOver(size);
  }

  kib.addEventListener("input", answer);
  for (const button of document.querySelectorAll(".budget-tools button")) {
    button.addEventListener("click", () => {
      kib.value = button.dataset.budget;
      answer();
    });
  }
  answer();
}
