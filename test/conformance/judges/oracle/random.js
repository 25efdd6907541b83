// A seeded random number generator (mulberry32).
export class Random {
  constructor(...seeds) {
    this.state = 0x9e3779b9
    for (const seed of seeds) this.state = Math.imul(this.state ^ seed, 0x85ebca6b) + this.bits()
  }

  bits() {
    this.state = (this.state + 0x6d2b79f5) | 0
    let t = Math.imul(this.state ^ (this.state >>> 15), this.state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return (t ^ (t >>> 14)) >>> 0
  }

  below(n) {
    return this.bits() % n
  }

  chance(p) {
    return this.bits() < p * 2 ** 32
  }

  pick(list) {
    return list[this.below(list.length)]
  }

  shuffled(list) {
    const all = [...list]
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.below(i + 1)
      ;[all[i], all[j]] = [all[j], all[i]]
    }
    return all
  }
}
