"""Defects of rollbacks on purpose, and of branches."""

from tests.sabotage.defect import Defect

_BACK = "tests/table/test_rollback.py"
_BRANCHES = "tests/table/test_branches.py"
_BY_HAND = "tests/table/test_branches_by_hand.py"
_OF_PAIMON = "tests/table/test_rollback_of_paimon.py"
_DEATHS = "tests/crash/test_branches.py"
_ACCIDENTS = "tests/table/test_branch_accidents.py"

OF_BRANCHES = (
    Defect("a rollback leaves DELETEs below what comes back", "table/manifests.py:Manifests.merge",
           "if without_deletes else", "if False else", (_BACK,)),
    Defect("a rollback takes the states of the target", "table/commit/tries.py:Looking.look",
           "guard.carried(states)", "States({}, True)", (_BACK,)),
    Defect("nothing leaves the table with a rollback", "table/branching/rollback.py:BackTo.replaces",
           "entry.identity not in was]", "False]", (_BACK,)),
    Defect("what comes back is not kept from expiry", "table/branching/pins.py:pins_of",
           "if before is not None and left <= _live(table, tags[before]):", "if before is not None:", (_BACK,)),
    Defect("files that are gone are brought back", "table/branching/rollback.py:check_there",
           "table.file_io.size(path) is None", "False", (_BACK,)),
    Defect("who wrote to main since does not matter", "table/branching/fast_forward.py:plan_fast_forward",
           "sorted(set(writers) - set(discard))", "[]", (_BRANCHES,)),
    Defect("an application may write to main and to a branch", "table/branching/fast_forward.py:_states_to_take",
           "if now.get(each) not in (of_main.get(each), taken[each])", "if False", (_BRANCHES,)),
    Defect("main's states are taken back to those of the branch", "table/branching/fast_forward.py:_states_to_take",
           "if state != of_branch.get(application)}", "}", (_BRANCHES,)),
    Defect("states stay behind in the branch", "table/branching/fast_forward.py:_AsPlanned.carried",
           "states = states.with_state(application, state)", "pass", (_BRANCHES,)),
    Defect("a branch is taken over by another main than the planned one", "table/branching/fast_forward.py:_AsPlanned.fence",
           "if self._table.snapshots.known() != self._plan.newest:", "if False:", (_BRANCHES,)),
    Defect("bounded runs of a deleted branch are forgotten", "sinks/paimon/past/history_of.py:known_run",
           "if user in runs_brought_by(snapshot):", "if False:", (_BRANCHES,)),
    Defect("a namesake of a branch is taken for it", "table/branching/fast_forward.py:_base",
           "if each == whole or bool(uuid) and each.uuid == uuid", "if True", (_BRANCHES,)),
    Defect("a branch is deleted under a query", "commands/branches.py:delete_branch",
           'journal.claim(f"delete-branch-{IdSource().new_id()}", 0)', "pass", (_BY_HAND,)),
    Defect("what Paimon's rollback went back over proves that rows are there", "table/history/lineage.py:_line",
           "if of_target is not None and said != of_target:", "if False:", (_OF_PAIMON,)),
    Defect("a snapshot that went back says what it has taken out", "table/history/lineage.py:named_since",
           "_live_of(table, snapshot) if went_back else", "", (_OF_PAIMON,)),
    Defect("files of a branch lie in its folder", "table/layout.py:Layout.within",
           "self.main if self.branch and _is_shared(relative) else self.root", "self.root", (_DEATHS, _BRANCHES)),
    Defect("runs that a branch has forgotten are taken for new ones", "sinks/paimon/past/history_of.py:known_run",
           "are_named = are_named and brought_all_runs(snapshot)", "pass",
           (f"{_ACCIDENTS}::test_a_run_of_which_the_branch_has_forgotten_the_snapshot_is_asked_for",)),
    Defect("main claims to know writers that a branch has forgotten", "table/branching/fast_forward.py:_AsPlanned.carried",
           "states if self._plan.is_complete else replace(states, complete=False)", "states",
           (f"{_ACCIDENTS}::test_what_the_branch_has_forgotten_of_its_writers_main_does_not_claim_to_know",)),
    Defect("a branch is made of a snapshot that has expired", "table/branching/branches.py:_kept",
           "if in_file(table, target.path) is None:", "if False:",
           (f"{_ACCIDENTS}::test_an_expiry_at_any_call_of_a_creation",)),
    Defect("a target that has expired meanwhile is damage", "table/branching/rollback.py:_retained",
           "if in_file(table, target.path) == target.snapshot:", "if True:",
           (f"{_BACK}::test_an_expiry_that_takes_the_target_at_any_call",)),
    Defect("a snapshot that has expired is pinned without its files", "table/branching/pins.py:pin",
           "if in_file(table, which.path) == which.snapshot:", "if True:",
           (f"{_BACK}::test_an_expiry_that_takes_the_target_at_any_call",)),
    Defect("what is pending in a branch is an orphan", "sinks/paimon/care/needed.py:_places",
           "(path for _, path in branches(table))", "()",
           (f"{_ACCIDENTS}::test_orphan_cleaning_leaves_alone_what_is_pending_in_a_branch",)),
)
