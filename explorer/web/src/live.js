import './bar.css'
import './live.css'
import { access, onAccess } from './access.js'
import { Account } from './account.js'
import { Lines } from './lines.js'
import { Plot } from './plot.js'
import { Stream } from './stream.js'
import { Tables } from './tables.js'

const find = (id) => document.getElementById(id)
const kept = 2000 // maximum number of recent blocks, which rewind needs

const state = find('state')
const counts = { received: 0, missed: 0, lost: 0, caught: 0 }
const tables = new Tables(find('workchains'))
const intervals = new Plot(find('interval'))
const lags = new Plot(find('lag'))
const account = new Account(find('account'), { balance: find('balance'), at: find('balance-at') })

let lines, recent, arrivals, waiting, paused, note, stream

function clear() {
  lines = new Lines()
  recent = []
  arrivals = new Map()
  waiting = []
  for (const part of [tables, intervals, lags]) part.clear()
}

function say(name, text) {
  state.dataset.state = name
  if (state.textContent !== text) state.textContent = text
}

const told = {
  block(block, how, now) {
    counts.missed += lines.add(block)
    if (how !== 'stored') counts.received++
    if (how === 'caught') counts.caught++
    recent.push({ ...block, stored: how === 'stored' })
    if (recent.length > kept) recent.shift()
    const lag = how === 'stored' ? null : now / 1000 - block.gen_utime
    measure(block, how, lag, now)
    waiting.push([block, lag])
    if (waiting.length > kept) waiting.shift()
    account.refresh(block)
  },
  rewind(cursor) {
    const dropped = recent.filter((block) => block.chain_order > cursor)
    recent = recent.filter((block) => block.chain_order <= cursor)
    waiting = waiting.filter(([block]) => block.chain_order <= cursor)
    counts.received -= dropped.filter(({ stored }) => !stored).length
    lines = new Lines()
    arrivals.clear()
    for (const block of recent) lines.add(block)
    tables.rewind(cursor)
  },
  restart(why) {
    note = `${why} It starts over.`
    clear()
  },
  state(name, detail) {
    const last = recent.at(-1)
    const behind = last ? `behind block ${last.workchain_id}:${last.shard}:${last.seq_no}` : 'with the newest blocks'
    switch (name) {
      case 'connecting':
        if (state.dataset.state !== 'lost') say(name, 'Connecting…')
        return
      case 'behind':
        return say(name, 'Connected. Catching up…')
      case 'live':
        if (note) [detail, note] = [note, undefined]
        if (typeof detail === 'number') detail = `Resumed ${caughtUp(detail)}`
        return say(name, `Live. ${detail ?? ''}`.trim())
      case 'lost':
        if (state.dataset.state !== 'lost') counts.lost++
        return say(name, `${detail} Trying again, to go on ${behind}.`)
      case 'refused':
        return say(name, detail)
    }
  },
}

function caughtUp(count) {
  const blocks = count === 1 ? '1 block' : `${count} blocks`
  return `with ${blocks} caught up; ${counts.missed === 0 ? 'none was missed.' : `${counts.missed} are missing.`}`
}

// measure records the interval between two blocks of a shard and the lag of a block. The
// interval is the time between their arrivals or, if one of them did not arrive live,
// between their generation times.
function measure(block, how, lag, now) {
  const line = `${block.workchain_id}:${block.shard}`
  const before = arrivals.get(line)
  const live = how === 'live'
  const skew = Date.now() - now // the plots use the clock of this machine
  if (before) {
    const seconds = live && before.live ? (now - before.now) / 1000 : block.gen_utime - before.gen_utime
    intervals.add(block.workchain_id, (live ? now : block.gen_utime * 1000) + skew, seconds)
  }
  if (lag !== null) lags.add(block.workchain_id, now + skew, lag)
  arrivals.set(line, { live, now, gen_utime: block.gen_utime })
}

// draw shows changes at most four times a second, and not while the page is hidden.
let drawn = 0
function draw(time) {
  requestAnimationFrame(draw)
  if (time - drawn < 250) return
  drawn = time
  for (const [name, count] of Object.entries(counts)) find(name).textContent = count
  find('missed').classList.toggle('bad', counts.missed > 0)
  if (paused) return
  for (const [block, lag] of waiting.splice(0)) tables.add(block, lag)
  for (const plot of [intervals, lags]) plot.draw(Date.now())
}

find('pause').addEventListener('click', ({ currentTarget }) => {
  paused = !paused
  currentTarget.setAttribute('aria-pressed', paused)
})

function begin(to) {
  stream?.close()
  for (const name of Object.keys(counts)) counts[name] = 0
  note = undefined
  clear()
  account.turn(to)
  stream = new Stream(to, told)
  stream.run()
}

onAccess(begin)
begin(access())
requestAnimationFrame(draw)
