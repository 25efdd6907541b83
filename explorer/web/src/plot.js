// A plot of the last five minutes with a dot for each block. The color of a dot shows the
// workchain. The legend shows the median and the last value of each workchain.
const span = 5 * 60_000
const most = 3000 // maximum number of dots per workchain
const [height, left, right, bottom, top] = [136, 44, 4, 20, 8] // pixels
const svg = (name, attributes, ...children) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  element.append(...children)
  return element
}

export class Plot {
  series = new Map() // from workchain to a list of [time, seconds]

  constructor(figure) {
    this.title = figure.querySelector('figcaption').textContent
    this.area = svg('g', {})
    this.image = svg('svg', { height, role: 'img' }, this.area)
    this.legend = document.createElement('p')
    this.legend.className = 'legend'
    figure.append(this.image, this.legend)
    this.draw(Date.now())
  }

  add(workchain, time, seconds) {
    if (!this.series.has(workchain)) this.series.set(workchain, [])
    const dots = this.series.get(workchain)
    dots.push([time, seconds])
    if (dots.length > most) dots.shift()
  }

  clear() {
    this.series.clear()
  }

  draw(now) {
    for (const dots of this.series.values()) while (dots.length > 0 && dots[0][0] < now - span) dots.shift()
    const series = [...this.series].filter(([, dots]) => dots.length > 0).sort(([a], [b]) => a - b)
    const highest = ceiling(Math.max(0.8, ...series.flatMap(([, dots]) => dots.map(([, seconds]) => seconds))) * 1.2)
    const edge = (this.image.clientWidth || 320) - right
    const x = (time) => (edge - ((now - time) / span) * (edge - left)).toFixed(1)
    const y = (seconds) => (height - bottom - (Math.max(seconds, 0) / highest) * (height - bottom - top)).toFixed(1)
    const grid = [0, highest / 2, highest].flatMap((value) => [
      svg('path', { class: 'grid', d: `M${left} ${y(value)}H${edge}` }),
      svg('text', { x: left - 6, y: Number(y(value)) + 4, 'text-anchor': 'end' }, value >= 120 ? shown(value) : `${value} s`),
    ])
    const minutes = [4, 3, 2, 1, 0].map((ago) => svg('text', {
      x: x(now - ago * 60_000), y: height - 4, 'text-anchor': ago === 0 ? 'end' : 'middle',
    }, ago === 0 ? 'now' : `−${ago} min`))
    const dots = series.map(([workchain, dots], i) => svg('path', {
      class: `dots ${style(i)}`, d: dots.map(([time, seconds]) => `M${x(time)} ${y(seconds)}h0`).join(''), 'data-workchain': workchain,
    }))
    this.area.replaceChildren(...grid, ...minutes, ...dots.reverse())
    const words = series.map(([workchain, dots]) => `${nameOf(workchain)}: median ${shown(median(dots))}, last ${shown(dots.at(-1)[1])}`)
    this.image.setAttribute('aria-label', `${this.title}. ${words.join('; ') || 'No blocks yet'}`)
    this.legend.replaceChildren(...words.map((text, i) => {
      const entry = document.createElement('span')
      entry.className = style(i)
      entry.textContent = text
      return entry
    }))
  }
}

export const nameOf = (workchain) => (workchain === -1 ? 'Masterchain' : `Workchain ${workchain}`)

const style = (i) => `series-${i % 4}`

// shown formats a duration. It may be years, if the blocks of an old chain are replayed.
export function shown(seconds) {
  const [unit, name] = [[86400, 'd'], [3600, 'h'], [60, 'min']].find(([unit]) => seconds >= 2 * unit) ?? [1, 's']
  return `${(seconds / unit).toFixed(unit === 1 ? 1 : 0)} ${name}`
}

function median(dots) {
  const sorted = dots.map(([, seconds]) => seconds).sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]
}

// ceiling rounds up to the next of 1, 2, 5, 10, 20, …
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value)
}
