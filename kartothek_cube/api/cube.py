"""Cubes: kartothek's ``api.cube``."""

from kartothek_cube.cube.conditions import (
    C,
    Condition,
    Conjunction,
    EqualityCondition,
    GreaterEqualCondition,
    GreaterThanCondition,
    InequalityCondition,
    InIntervalCondition,
    IsInCondition,
    LessEqualCondition,
    LessThanCondition,
    SimpleCondition,
    VirtualColumn,
)
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.plan import Group, QueryPlan
from kartothek_cube.cube.prepare import CUBE_SERIALIZER as KTK_CUBE_DF_SERIALIZER
from kartothek_cube.cube.verbs.append import append_to_cube, remove_partitions, update_cube
from kartothek_cube.cube.verbs.build import build_cube, extend_cube
from kartothek_cube.cube.verbs.query import iter_cube, load_group, plan_cube_query, query_cube, query_cube_arrow
