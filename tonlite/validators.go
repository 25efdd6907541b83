package tonlite

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/xssnick/tonutils-go/ton"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// A validator signs masterchain blocks.
type validator struct {
	key, address [32]byte
	weight       uint64
}

// parseValidators reads from a key block who signs a block in a session.
func parseValidators(key *cell.Cell, session uint32) ([]validator, error) {
	extra, err := key.PeekRef(3)
	if err != nil {
		return nil, err
	}
	custom, err := extra.PeekRef(3)
	if err != nil {
		return nil, err
	}
	s, err := open(custom)
	if err != nil {
		return nil, err
	}
	in := scan{Slice: s}
	in.expect(16, 0xcca5, "masterchain extra")
	if !in.flag() || custom.RefsNum() == 0 {
		return nil, errors.New("it is no key block")
	}
	config, err := custom.PeekRef(int(custom.RefsNum()) - 1) // the last part of a key block's
	if err != nil {
		return nil, err
	}
	return configured(config, session)
}

// configured reads from the network's configuration who signs a masterchain
// block in a session: the first of the set, in an order that may be shuffled.
func configured(config *cell.Cell, session uint32) ([]validator, error) {
	in, err := parameter(config, 28)
	if err != nil {
		return nil, err
	}
	shuffled := false
	switch kind := in.number(8); {
	case kind == 0xc2:
		in.number(7)
		shuffled = in.flag()
	case kind != 0xc1 && in.err == nil:
		in.err = errConfig
	}
	if in.err != nil {
		return nil, in.err
	}
	in, err = parameter(config, 35) // who stand in for those of 34, where there are any
	if errors.Is(err, errNoKey) {
		in, err = parameter(config, 34)
	}
	if err != nil {
		return nil, err
	}
	kind := in.number(8)
	in.number(32 + 32) // since, until
	in.number(16)      // how many in all
	main := int(in.number(16))
	var set []validator
	take := func(_ uint64, s *cell.Slice) error {
		v, err := parseValidator(s)
		set = append(set, v)
		return err
	}
	switch {
	case in.err != nil:
		return nil, in.err
	case kind == 0x11:
		err = allBelow(in.Slice, 16, maxValidators, take)
	case kind == 0x12:
		in.number(64) // weight in all
		var dict *cell.Cell
		if !in.flag() || in.err != nil {
			return nil, errConfig
		}
		if dict, err = in.LoadRefCell(); err == nil {
			err = all(dict, 16, maxValidators, take)
		}
	default:
		err = errConfig
	}
	if err != nil {
		return nil, err
	}
	set = set[:min(main, len(set))]
	if shuffled {
		set = shuffle(set, session)
	}
	return set, nil
}

const maxValidators = 65536

var errConfig = errors.New("the network's validators are configured in an unknown way")

// parameter opens a part of the network's configuration.
func parameter(config *cell.Cell, number uint32) (in scan, err error) {
	leaf, err := find(config, binary.BigEndian.AppendUint32(nil, number))
	if err != nil {
		return in, err
	}
	c, err := leaf.LoadRefCell()
	if err != nil {
		return in, err
	}
	in.Slice, err = open(c)
	return in, err
}

func parseValidator(s *cell.Slice) (v validator, err error) {
	in := scan{Slice: s}
	kind := in.number(8)
	in.expect(32, 0x8e81278a, "key")
	v.key, v.weight = in.hash(), in.number(64)
	switch {
	case kind == 0x73:
		v.address = in.hash()
	case kind != 0x53 && in.err == nil:
		in.err = errConfig
	}
	return v, in.err
}

// shuffle puts validators into the order of a session.
func shuffle(set []validator, session uint32) []validator {
	random := ton.NewValidatorSetPRNG(-1<<63, masterchain, session, nil)
	order := make([]int, len(set))
	for i := range order {
		j := random.NextRanged(uint64(i) + 1)
		order[i] = order[j]
		order[j] = i
	}
	shuffled := make([]validator, len(set))
	for i, j := range order {
		shuffled[i] = set[j]
	}
	return shuffled
}

// setHash is the short name of a set of validators, as headers have it.
func setHash(set []validator, session uint32) uint32 {
	data := binary.LittleEndian.AppendUint32(nil, 0x901660ed)
	data = binary.LittleEndian.AppendUint32(data, session)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(set)))
	for _, v := range set {
		data = append(data, v.key[:]...)
		data = binary.LittleEndian.AppendUint64(data, v.weight)
		data = append(data, v.address[:]...)
	}
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}
