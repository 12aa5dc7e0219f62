"""Opening the database."""

from sqlalchemy import text

from rackwright.store.database import Database


async def test_an_open_database_answers(database: Database) -> None:
    async with database.engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
