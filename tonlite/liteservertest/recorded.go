package liteservertest

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

// genesisRoot and genesisFile are the hashes of the zero state of TON's mainnet. All recordings
// are from that network.
const genesisRoot, genesisFile = "17a3a92992aabea785a7a090985a265cd31f323d849da51239737e321fb05569",
	"5e994fcf4d425c0a6ce6a792594b7173205f740a39cd56f537defd28b48a0f6e"

// Recorded reads all blocks from the archive packs in a directory. An archive pack is a file
// named *.pack, or *.pack.gz if it is compressed with gzip. The chain has no states. It has no
// trusted block either, so tonlite can open it only with Options.Unproven.
func Recorded(dir string) (*Chain, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.pack*"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("liteservertest: directory %s contains no archive packs", dir)
	}
	c := recording()
	for _, file := range files {
		if err := c.addPack(file); err != nil {
			return nil, fmt.Errorf("liteservertest: %s: %w", file, err)
		}
	}
	return c, nil
}

// RecordedStates reads masterchain blocks from one directory and the states after them from
// another. The name of a file is the seq_no of the block, followed by .gz if the file is
// compressed with gzip. The chain contains only blocks that have a state, and no shard blocks.
func RecordedStates(blocks, states string) (*Chain, error) {
	files, err := os.ReadDir(states)
	if err != nil {
		return nil, fmt.Errorf("liteservertest: %w", err)
	}
	c := recording()
	for _, f := range files {
		if err := c.addState(blocks, states, f.Name()); err != nil {
			return nil, fmt.Errorf("liteservertest: state %s: %w", f.Name(), err)
		}
	}
	return c, nil
}

// readFile returns the contents of a file, which is compressed if its name ends with .gz.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if !strings.HasSuffix(path, ".gz") {
		return io.ReadAll(f)
	}
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}

// recording returns an empty chain of TON's mainnet.
func recording() *Chain {
	c := newChain()
	c.zeroRoot, c.zeroFile = unhex(genesisRoot), unhex(genesisFile)
	return c
}

const entryMagic = 0x1e8b

var errPack = errors.New("malformed archive pack")

func (c *Chain) addPack(file string) error {
	data, err := readFile(file)
	if err != nil {
		return err
	}
	if len(data) < 4 {
		return errPack
	}
	for rest := data[4:]; len(rest) > 0; {
		if len(rest) < 8 || binary.LittleEndian.Uint16(rest) != entryMagic {
			return errPack
		}
		named, sized := int(binary.LittleEndian.Uint16(rest[2:])), int(binary.LittleEndian.Uint32(rest[4:]))
		if len(rest) < 8+named+sized {
			return errPack
		}
		title, body := string(rest[8:8+named]), rest[8+named:8+named+sized]
		rest = rest[8+named+sized:]
		if inner, ok := strings.CutPrefix(title, "block_("); ok {
			if err := c.addNamed(inner, body); err != nil {
				return fmt.Errorf("%s: %w", title, err)
			}
		}
	}
	return nil
}

// addNamed adds a block from a file. title is the title of the file after "block_(": workchain,shard,seq_no):root
// hash:file hash.
func (c *Chain) addNamed(title string, data []byte) error {
	inner, sums, _ := strings.Cut(title, "):")
	fields := strings.Split(inner, ",")
	if len(fields) != 3 {
		return errPack
	}
	workchain, err1 := strconv.ParseInt(fields[0], 10, 32)
	shard, err2 := strconv.ParseUint(fields[1], 16, 64)
	seqNo, err3 := strconv.ParseUint(fields[2], 10, 32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	id, err := c.add(int32(workchain), shard, uint32(seqNo), data)
	if err != nil {
		return err
	}
	if !strings.EqualFold(sums, fmt.Sprintf("%x:%x", id.Root, id.File)) {
		return errors.New("the hashes in the name of the block do not match its contents")
	}
	return nil
}

func (c *Chain) addState(blocks, states, file string) error {
	n, err := strconv.ParseUint(strings.TrimSuffix(file, ".gz"), 10, 32)
	if err != nil {
		return err
	}
	data, err := readFile(filepath.Join(blocks, file))
	if err != nil {
		return err
	}
	id, err := c.add(masterchain, wholeShard, uint32(n), data)
	if err != nil {
		return err
	}
	if data, err = readFile(filepath.Join(states, file)); err != nil {
		return err
	}
	state, err := cell.FromBOC(data)
	if err != nil {
		return err
	}
	if want := c.blocks[id].root.MustPeekRef(2).ToRawUnsafe().Data[33:65]; string(state.Hash(0)) != string(want) {
		return errors.New("the file does not contain the state after the block")
	}
	c.states[id.Root] = state
	return nil
}
