package resource

// Set is the resources a flow's tasks can reach, by name.
type Set struct {
	byName map[string]Resource
	parent *Set
}

// Get finds a resource in the set or in the sets it was laid over; nil if there is none.
func (s *Set) Get(name string) Resource {
	for ; s != nil; s = s.parent {
		if r, ok := s.byName[name]; ok {
			return r
		}
	}
	return nil
}
