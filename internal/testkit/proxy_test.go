package testkit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }

func TestFreeAddressCanBeListenedOn(t *testing.T) {
	for range 10 {
		l, err := net.Listen("tcp", testkit.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // so that the next is another
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("others can reach %v", ip)
		}
	}
}

func TestLineIsCutAndFallsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // says what it hears
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	r := testkit.NewProxy(t, l.Addr().String())
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c, bufio.NewReader(c)
	}
	hear := func(c net.Conn, from *bufio.Reader, patience time.Duration) (string, error) {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		return from.ReadString('\n')
	}
	c, from := dial()
	fmt.Fprintln(c, "one")
	if line, err := hear(c, from, 5*time.Second); line != "one\n" {
		t.Fatalf("heard %q, %v", line, err)
	}
	resume := r.Stall()
	fmt.Fprintln(c, "two")
	if line, err := hear(c, from, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v from a silent line", line, err)
	}
	resume()
	if line, err := hear(c, from, 5*time.Second); line != "two\n" {
		t.Fatalf("heard %q, %v", line, err)
	}
	r.Cut()
	if line, err := hear(c, from, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v from a line that was cut", line, err)
	}
	c, from = dial()
	fmt.Fprintln(c, "three")
	if line, err := hear(c, from, 5*time.Second); line != "three\n" {
		t.Fatalf("heard %q, %v", line, err)
	}
	_ = l.Close()
	c, from = dial()
	if line, err := hear(c, from, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v from nobody", line, err)
	}
	r.Refuse()
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port())); err == nil {
		t.Errorf("a line that is refused was made: %v", c.Close())
	}
}
