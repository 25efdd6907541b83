package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/chaingql/chaingql/test/bench/source"
)

// A process is a child that is told what to do in lines, and answers each with
// one line of JSON.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

// start runs a command.
func start(ctx context.Context, name string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "NODE_ENV=production") // as Node's servers are run
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out)}, nil
}

// startSelf runs this program.
func startSelf(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, self, args...)
}

// tell sends a line.
func (p *process) tell(line string) error {
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

// hear reads an answer.
func (p *process) hear(v any) error {
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%v: %w", p.cmd.Args, err)
	}
	return json.Unmarshal(line, v)
}

// ask does both.
func (p *process) ask(line string, v any) error {
	return errors.Join(p.tell(line), p.hear(v))
}

// stop ends it and waits for it.
func (p *process) stop() {
	_ = p.in.Close()                                                            // it ends when there is nothing more to do
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() }) // or now
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// A server is a peer in a process of its own.
type server struct {
	*process
	peer, addr string
}

// launch starts the server of a peer.
func launch(ctx context.Context, peer string) (*server, error) {
	if peer == mercurius || peer == yoga {
		s, err := source.New()
		if err != nil {
			return nil, err
		}
		return launchNode(ctx, peer, s)
	}
	p, err := startSelf(ctx, "serve", peer)
	return newServer(peer, p, err)
}

// launchNode starts the server of a peer of Node.js on a copy of a chain.
func launchNode(ctx context.Context, peer string, chain *source.Source) (*server, error) {
	p, err := startNode(ctx, peer, chain)
	return newServer(peer, p, err)
}

func newServer(peer string, p *process, err error) (*server, error) {
	if err != nil {
		return nil, err
	}
	s := &server{process: p, peer: peer}
	if err := s.hear(&s.addr); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// do tells the server to do something, and returns its state then.
func (s *server) do(line string) (state, error) {
	var now state
	err := s.ask(line, &now)
	return now, err
}
