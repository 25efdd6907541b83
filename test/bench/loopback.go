package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// shareOfConstant holds the targets for the requests per second of each query, as a share of those of a constant
// response.
var shareOfConstant = map[string]float64{"balance": 0.88, "latest": 0.88, "last 50": 0.7}

// loopback measures complete servers over HTTP on this machine. Each server runs several times as a new process,
// because rates differ more between processes than between the rounds of one.
func loopback(ctx context.Context, size sizes, r *report) error {
	peers := goPeers
	if err := nodeReady(); err != nil {
		r.log.Write(fmt.Appendf(nil, "%s and %s are not measured: %v\n", mercurius, yoga, err))
	} else {
		peers = append(peers[:len(peers):len(peers)], mercurius, yoga)
	}
	rates, used := map[string]costs{}, map[string]costs{}
	for range size.processes {
		if err := loopbackRounds(ctx, size, peers, rates, used); err != nil {
			return err
		}
	}
	rate := r.table(fmt.Sprintf("Over loopback, %d connections: requests per second", size.connections),
		append([]string{"query"}, peers...)...)
	cost := r.table("Over loopback: CPU of the server per request (µs)", append([]string{"query"}, peers...)...)
	busy := 1.0
	for _, q := range queries {
		rates, used := rates[q.name], used[q.name]
		if rates == nil {
			continue
		}
		rateRow, costRow := []string{q.name}, []string{q.name}
		for _, peer := range peers {
			rateRow = append(rateRow, fmt.Sprintf("%.0f", rates.median(peer)))
			costRow = append(costRow, fmt.Sprintf("%.1f", used.median(peer)))
		}
		rate.add(rateRow...)
		cost.add(costRow...)
		busy = min(busy, rates.median(constant)*used.median(constant)/1e6)
		r.atLeast("loopback, "+q.name+": our requests per second over those of a constant response of the same size",
			rates.ratio(own, constant), shareOfConstant[q.name])
	}
	rate.note(fmt.Sprintf("Each server runs on the first CPU, and the client on the second one, where it polls "+
		"without sleeping, so that no server pays for waking it. Each figure is the median of %d processes of each "+
		"server, with %d rounds each. The server with a constant response used at least %.0f %% of its CPU: "+
		"if the client limited the rates, it would use less.", size.processes, size.loads(), 100*busy))
	return nil
}

// loads is the number of rounds over loopback for each process.
func (s sizes) loads() int { return max(2, 2*s.rounds/s.processes) }

// loopbackRounds starts the servers of all peers and adds what it measures to the rates and costs of each query.
func loopbackRounds(ctx context.Context, size sizes, peers []string, rates, used map[string]costs) error {
	var names []string // a constant response is measured directly before chaingql
	for _, q := range queries {
		if !q.stored { // the servers have a live chain
			names = append(names, constantFor(q))
		}
	}
	for _, peer := range peers {
		if peer != constant {
			names = append(names, peer)
		}
	}
	servers, err := launchAll(ctx, launchOnOneCPU, names)
	defer stopAll(servers)
	if err != nil {
		return err
	}
	for _, q := range queries {
		if q.stored {
			continue
		}
		asked := slices.DeleteFunc(slices.Clone(servers), func(s *server) bool {
			return strings.HasPrefix(s.peer, constant) && s.peer != constantFor(q)
		})
		var rate, cost costs
		failed := onCPU(1, func() {
			rate, cost, err = alternateLoads(ctx, asked, newAwakeLoad, q.body, size.loads(), size.load/5, size)
		})
		if err := errors.Join(err, failed); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		rates[q.name], used[q.name] = rates[q.name].join(rate, q), used[q.name].join(cost, q)
	}
	return nil
}

// join adds the costs of other to c. It names the constant response to q like that to any query.
func (c costs) join(other costs, q query) costs {
	if c == nil {
		c = costs{}
	}
	for peer, values := range other {
		if peer == constantFor(q) {
			peer = constant
		}
		c[peer] = append(c[peer], values...)
	}
	return c
}

// alternateLoads sends the same body to all servers alternately, over connections that newLoad opens. After a warm-up,
// each server has a load of the duration d in each round. It returns the number of requests per second and the CPU time
// per request of each server.
func alternateLoads(ctx context.Context, servers []*server, newLoad func(string, []byte, int) (*load, error),
	posted []byte, rounds int, d time.Duration, size sizes) (rates, costs costs, err error) {
	rates, costs = map[string][]float64{}, map[string][]float64{}
	loads := map[string]*load{}
	defer func() {
		for _, l := range loads {
			l.close()
		}
	}()
	for _, s := range servers {
		if loads[s.peer], err = newLoad(s.addr, posted, size.connections); err != nil {
			delete(loads, s.peer)
			return nil, nil, err
		}
		if _, _, err := loads[s.peer].run(size.load); err != nil { // warm-up
			return nil, nil, fmt.Errorf("%s: %w", s.peer, err)
		}
	}
	for range rounds {
		for _, s := range servers {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			rate, cost, err := s.load(loads[s.peer], d)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", s.peer, err)
			}
			rates[s.peer], costs[s.peer] = append(rates[s.peer], rate), append(costs[s.peer], cost)
		}
	}
	return rates, costs, nil
}

// load runs l for the duration d. It returns the number of requests per second, and the server's CPU
// time per request in microseconds.
func (s *server) load(l *load, d time.Duration) (rate, cost float64, err error) {
	before, err := s.do("state")
	if err != nil {
		return 0, 0, err
	}
	n, took, err := l.run(d)
	if err != nil {
		return 0, 0, err
	}
	after, err := s.do("state")
	if n == 0 || took == 0 {
		err = errors.Join(err, errors.New("the server sent no responses"))
	}
	return float64(n) / took.Seconds(), float64((after.CPU - before.CPU).Microseconds()) / float64(n), err
}

// launchAll starts the servers of all peers with the function launch. If one fails, it returns those that are running.
func launchAll(ctx context.Context, launch launcher, peers []string) (servers []*server, err error) {
	for _, peer := range peers {
		s, err := launch(ctx, peer)
		if err != nil {
			return servers, fmt.Errorf("%s: %w", peer, err)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func stopAll(servers []*server) {
	for _, s := range servers {
		s.stop()
	}
}
