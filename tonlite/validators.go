package tonlite

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/xssnick/tonutils-go/ton"
)

// A validator signs masterchain blocks.
type validator struct {
	key, address [32]byte
	weight       uint64
}

// parseValidators returns the validators that sign the masterchain blocks of a session, as the
// given key block specifies.
func parseValidators(key *cell.Cell, session uint32) ([]validator, error) {
	extra, err := key.Ref(3)
	if err != nil {
		return nil, err
	}
	custom, err := extra.Ref(3)
	if err != nil {
		return nil, err
	}
	s, err := openCell(custom)
	if err != nil {
		return nil, err
	}
	in := cellReader{Slice: s}
	in.expect(16, 0xcca5, "masterchain_block_extra")
	if !in.readBool() || custom.NumRefs() == 0 {
		return nil, errors.New("the block is not a key block")
	}
	config, err := custom.Ref(custom.NumRefs() - 1) // the last reference of a key block
	if err != nil {
		return nil, err
	}
	return validatorsOf(config, session)
}

// validatorsOf returns the validators that sign the masterchain blocks of a session. config is
// the network's configuration. The validators are the first ones of the configured set, in
// shuffled order if the configuration says so.
func validatorsOf(config *cell.Cell, session uint32) ([]validator, error) {
	in, err := configParam(config, 28)
	if err != nil {
		return nil, err
	}
	shuffled := false
	switch kind := in.readUint(8); {
	case kind == 0xc2:
		in.readUint(7)
		shuffled = in.readBool()
	case kind != 0xc1 && in.err == nil:
		in.err = errConfig
	}
	if in.err != nil {
		return nil, in.err
	}
	in, err = configParam(config, 35) // temporary validators replace those of parameter 34
	if errors.Is(err, errNoKey) {
		in, err = configParam(config, 34)
	}
	if err != nil {
		return nil, err
	}
	kind := in.readUint(8)
	in.readUint(32 + 32) // since, until
	in.readUint(16)      // total number
	main := int(in.readUint(16))
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
		err = forEachIn(in.Slice, 16, maxValidators, take)
	case kind == 0x12:
		in.readUint(64) // total weight
		var dict *cell.Cell
		if !in.readBool() || in.err != nil {
			return nil, errConfig
		}
		if dict, err = in.Ref(); err == nil {
			err = forEach(dict, 16, maxValidators, take)
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

var errConfig = errors.New("the network's configuration has an unknown format of validators")

// configParam opens the parameter with the given number in the network's configuration.
func configParam(config *cell.Cell, number uint32) (in cellReader, err error) {
	leaf, err := lookUp(config, binary.BigEndian.AppendUint32(nil, number))
	if err != nil {
		return in, err
	}
	c, err := leaf.Ref()
	if err != nil {
		return in, err
	}
	in.Slice, err = openCell(c)
	return in, err
}

func parseValidator(s *cell.Slice) (v validator, err error) {
	in := cellReader{Slice: s}
	kind := in.readUint(8)
	in.expect(32, 0x8e81278a, "ed25519_pubkey")
	v.key, v.weight = in.readHash(), in.readUint(64)
	switch {
	case kind == 0x73:
		v.address = in.readHash()
	case kind != 0x53 && in.err == nil:
		in.err = errConfig
	}
	return v, in.err
}

// shuffle returns the validators in the order that they have in the given session.
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

// setHash returns the short hash that block headers contain for a set of validators in a session.
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
